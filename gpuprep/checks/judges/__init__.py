"""What did each probe measure, and is it right and fast enough? A module or folder for each probe, by its name."""
