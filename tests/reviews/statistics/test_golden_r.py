"""Golden values computed with R 4.2.2 (and its packages vcd 1.4-11, pwr 1.3-0); each test names the call.

R is not needed to run these tests; with it, each call prints the figures again (``options(digits = 12)``).
"""

from __future__ import annotations

import pytest

from reviews.statistics.agreement import cohens_kappa
from reviews.statistics.mcnemar import (
    benjamini_hochberg,
    cohens_h,
    exact_mcnemar,
    mcnemar_power,
    minimum_detectable_effect,
    required_n,
    wilson,
)
from reviews.statistics.paired_binary import lift
from reviews.statistics.paired_continuous import (
    bowker,
    detectable_dz,
    paired_means,
    paired_t_power,
    required_pairs,
    sign_test,
    wilcoxon_p,
)
from reviews.statistics.seed_variance import over_seeds
from reviews.statistics.win_rate import win_rate

SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
"""R's ``sleep$extra[1:10]`` and ``sleep$extra[11:20]``."""
TABLE = [[11, 3, 0], [2, 9, 4], [1, 2, 8]]


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [
        (0, 20, (0.0, 0.161125158053)),
        (3, 10, (0.107791267406, 0.603221852539)),
        (81, 263, (0.255288519878, 0.366209576983)),
        (98, 100, (0.929988209271, 0.994498032450)),
    ],
)
def test_wilson(successes: int, n: int, expected: tuple[float, float]) -> None:
    """``prop.test(x, n, correct = FALSE)$conf.int``."""
    assert wilson(successes, n) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_exact_mcnemar() -> None:
    """``binom.test(21, 25)$p.value`` and ``binom.test(57, 59)$p.value``."""
    assert exact_mcnemar(21, 4) == pytest.approx(0.000910520553589, rel=1e-10)
    assert exact_mcnemar(57, 2) == pytest.approx(6.14439055191e-15, rel=1e-10)


def test_benjamini_hochberg() -> None:
    """``p.adjust(p, "BH")`` for the fifteen p-values of the paper."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528]
    expected = [0.0015, 0.003, 0.0095, 0.035625, 0.0603, 0.0638571428571, 0.0638571428571, 0.0645, 0.0765]
    expected += [0.486, 0.5811818181818, 0.714875, 0.7532307692308, 0.8132142857143, 1.0]
    assert benjamini_hochberg([*p, 0.7590, 1.0]) == pytest.approx(expected, rel=1e-11)


def test_cohens_h() -> None:
    """``pwr::ES.h(0.78, 0.15)`` and ``pwr::ES.h(0.5, 0.9)``."""
    assert cohens_h(0.78, 0.15) == pytest.approx(1.36978329661, rel=1e-11)
    assert cohens_h(treatment=0.5, baseline=0.9) == pytest.approx(-0.927295218002, rel=1e-11)


def test_paired_t_and_cohens_d() -> None:
    """``t.test(y, x, paired = TRUE)``; ``mean(y-x)/sqrt((var(x)+var(y))/2)``; ``mean(y-x)/sd(y-x)``."""
    means = paired_means(SLEEP_1, SLEEP_2)
    assert (means.t, means.p) == pytest.approx((4.06212768338, 0.00283289019738), rel=1e-10)
    assert means.interval == pytest.approx((0.700114236723, 2.459885763277), rel=1e-10)
    assert (means.d, means.dz) == pytest.approx((0.83218108135, 1.28455756259), rel=1e-10)


def test_wilcoxon() -> None:
    """``wilcox.test(a, b, paired = TRUE)``; ties: ``wilcox.test(y, x, paired = TRUE, exact = FALSE)``."""
    first = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    second = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    assert wilcoxon_p(first, second) == pytest.approx(0.0390625, rel=1e-12)
    assert wilcoxon_p(SLEEP_1, SLEEP_2) == pytest.approx(0.00909069801593, rel=1e-9)


def test_sign_test() -> None:
    """``binom.test(9, 9)`` for the nine of ten that slept longer; ``binom.test(6, 7)``."""
    assert sign_test(SLEEP_1, SLEEP_2) == (9, 0, 1, pytest.approx(0.00390625, rel=1e-12))
    assert sign_test([0] * 7, [1, 2, 3, 4, 5, 6, -1]).p == pytest.approx(0.125, rel=1e-12)


def test_bowker() -> None:
    """``mcnemar.test(M, correct = FALSE)``, which is Bowker's test for a table of three rows."""
    result = bowker([[10, 7, 1], [2, 10, 6], [4, 0, 10]])
    assert (result.chi2, result.df, result.p) == pytest.approx((10.5777777778, 3, 0.0142424621708), rel=1e-10)


def test_power_of_the_paired_t_test() -> None:
    """``power.t.test(n, delta, sd = 1, sig.level, type = "paired", strict = TRUE)``; for n, delta: ``power = 0.8``."""
    assert paired_t_power(20, 0.5, 0.05) == pytest.approx(0.564504418439, abs=1e-9)
    assert paired_t_power(12, 0.9, 0.01) == pytest.approx(0.529663587195, abs=1e-9)
    assert detectable_dz(40, 0.05, 0.8) == pytest.approx(0.454256939684, abs=1e-7)
    assert required_pairs(0.5, 0.05, 0.8) == 34  # R: 33.367


def test_kappa() -> None:
    """``vcd::Kappa(T)``: value and ASE."""
    items = [row for row, counts in enumerate(TABLE) for count in counts for _ in range(count)]
    other = [column for counts in TABLE for column, count in enumerate(counts) for _ in range(count)]
    plain = cohens_kappa(items, other)
    assert plain.kappa == pytest.approx(0.548022598870, rel=1e-10)
    assert plain.interval == pytest.approx((0.333675706309, 0.762369491431), rel=1e-9)


def test_controlled_win_rate() -> None:
    """``optim`` on the penalised likelihood: priors ``b1^2/200 + b2^2/50``, ``x = tanh(longer / sd)``."""
    won = [1, 1, 0, 0.5, 1, 0, 1, 1, 0.5, 0, 1, 1]
    rate = win_rate(won, [30, 12, -8, 5, 44, -20, 9, 3, -2, -15, 60, -1])
    assert rate.controlled == pytest.approx(0.641093148374, abs=1e-6)
    assert rate.length_coefficient == pytest.approx(4.877529368028, abs=1e-4)
    # prop.test(8, 12, correct = FALSE)
    assert rate.interval == pytest.approx((0.390622088873, 0.861879908909), rel=1e-10)


def test_power_of_the_exact_mcnemar_test() -> None:
    """The sum over ``dbinom(d, n, g+l) * sum(dbinom(0:d, d, g/(g+l))[p < alpha])`` with p of ``binom.test(k, d)``."""
    assert mcnemar_power(60, 0.25, 0.05, 0.05) == pytest.approx(0.797295708899, abs=1e-10)
    assert mcnemar_power(120, 0.22, 0.08, 0.01) == pytest.approx(0.549721966721, abs=1e-10)
    assert mcnemar_power(25, 0.3, 0.05, 0.01) == pytest.approx(0.194394420737, abs=1e-10)
    assert required_n(0.25, 0.05, 0.05, 0.8) == 61
    # uniroot on the same sum.
    assert minimum_detectable_effect(60, 0.05, 0.05, 0.8) == pytest.approx(0.200811485144, abs=2e-6)


def test_components_and_interval_over_seeds() -> None:
    """``anova(lm(g ~ seed + item))``, ``t.test`` of the seeds' means, and ``quantile`` of all 27 x 27 draws."""
    gains = [[0, 4, 8], [2, 2, 8], [1, 3, 7]]
    summary = over_seeds([[0, 0, 0]], gains)
    squares = {"seeds": 0.111111111111, "items": 35.1111111111, "rest": 1.11111111111}
    assert summary.variance_rest == pytest.approx(squares["rest"], rel=1e-9)
    assert summary.variance_items == pytest.approx((squares["items"] - squares["rest"]) / 3, rel=1e-9)
    assert summary.variance_seeds == 0.0  # (0.111 - 1.111) / 3 is negative
    assert summary.seed_interval == pytest.approx((3.41081636336, 4.36696141442), rel=1e-9)
    # anova of another table, in which seeds differ: mean squares 64.083, 1.556 and 0.639.
    other = over_seeds([[0] * 4], [[0, 1, 0, 2], [4, 5, 3, 6], [9, 8, 9, 9]], resamples=10)
    components = (other.variance_items, other.variance_seeds, other.variance_rest)
    assert components == pytest.approx((0.305555555556, 15.861111111111, 0.638888888889), rel=1e-9)
    # R: 4/3 and 23/3 are the exact quantiles; at 2 % it is 1, at 97 % it is 22/3.
    assert summary.interval == pytest.approx((4 / 3, 23 / 3), abs=0.34)


def test_interval_of_a_lift() -> None:
    """The exact distribution of the resampled mean: ten times ``convolve`` of the shares of -1, 0 and 1."""
    result = lift([0] * 9 + [1], [1] * 4 + [0] * 6)
    # Cumulated: 0.0144 at -0.2, 0.0438 at -0.1; 0.9634 at 0.6, 0.9909 at 0.7.
    assert result.difference == pytest.approx(0.3) and result.interval == pytest.approx((-0.1, 0.7))
