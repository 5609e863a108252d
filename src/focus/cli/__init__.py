"""The `focus` command. Its modules import nothing heavy before a command runs."""
