"""Policies: token ids in, token ids and log-probs out. One backend per file."""
