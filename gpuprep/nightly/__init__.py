"""The nightly check on the host itself, with the controller gone. Runs in the agent's environment there."""
