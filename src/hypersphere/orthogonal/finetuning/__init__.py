"""Orthogonal fine-tuning: frozen pretrained weights and learned rotations of several kinds."""
