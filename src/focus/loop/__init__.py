"""One supervisor for a critic's trainer, its server and the actor's job."""
