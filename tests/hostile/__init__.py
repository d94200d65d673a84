"""Attacks on gpuprep, run for real: each test here tries one thing that must not succeed (docs/security.md)."""
