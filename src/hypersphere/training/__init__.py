"""Anyone's model on anyone's data: config, trainer, tasks, checkpoints, run folders."""
