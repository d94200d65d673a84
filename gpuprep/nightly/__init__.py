"""How does a host check itself every night, without the controller? Runs in the agent's environment."""
