"""What should the machine be? A profile as data, and the concrete versions and settings it means for one host. Pure."""
