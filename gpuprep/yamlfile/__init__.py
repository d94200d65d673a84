"""What does a YAML file of the user say, and on which line? One strict reader for profiles and settings.

gpuprep's own data (catalogue/, the defaults of the roles) is read by catalogue/datafile.py: its lines are checked
by our tests, not shown to a user. Inventories are read by Ansible, which hands them on as JSON.
"""
