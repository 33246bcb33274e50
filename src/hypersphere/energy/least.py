"""What the energy of no neurons can be below."""


def least_energy(neurons: int, dim: int) -> float:
    r"""Return a bound below the mean energy (s = 2) of any ``neurons`` directions in ``dim`` dimensions.

    The mean of ⟨ŵ_i, ŵ_j⟩ over pairs is at least m₁ = −1/(N − 1), because ‖Σŵ_i‖² ≥ 0; that of ⟨ŵ_i, ŵ_j⟩² is at least
    m₂ = (N/d − 1)/(N − 1), because ‖Σŵ_iŵ_iᵀ‖² ≥ N²/d. The energy 1/(2 − 2t) has positive derivatives of every order in
    t, so among all distributions of t with these moments the one on −1 and α = 1 − (1 − m₂)/(1 + m₁) has the least. Up
    to d + 1 neurons the simplex is best, (N − 1)/(2N). The bound is reached by the simplex and by ± an orthonormal
    basis, N = 2d. Beyond that it is never above the truth, and near it where d is large; many neurons in two or three
    dimensions have clearly more (the best 20 in space that the solver finds have 0.70, the bound is 0.57).

    >>> least_energy(4, 3), least_energy(6, 3)  # tetrahedron and octahedron
    (0.375, 0.45)
    """
    if neurons < 2 or dim < 2:
        raise ValueError(f"neurons and dim must be integers ≥ 2, got {neurons!r} and {dim!r}")
    if neurons <= dim + 1:
        return (neurons - 1) / (2 * neurons)
    first, second = -1 / (neurons - 1), (neurons / dim - 1) / (neurons - 1)
    alpha = 1 - (1 - second) / (1 + first)
    share = (1 + first) / (1 + alpha)  # of pairs at the cosine α; the others are opposite
    return (1 - share) / 4 + share / (2 - 2 * alpha)
