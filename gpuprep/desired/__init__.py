"""What should the machine be? The profile as data, and the exact versions and settings for one host."""
