"""Which steps bring a host to its profile, and how does Ansible run them?"""
