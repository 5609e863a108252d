"""Continuous batching over a Hugging Face causal LM in this process."""
