"""Interim."""
import math
def wilson(successes, n):
    from statsmodels.stats.proportion import proportion_confint
    a, b = proportion_confint(successes, n, 0.05, "wilson"); return float(a), float(b)
def exact_mcnemar(gained, lost):
    from scipy.stats import binomtest
    return float(binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0
def paired_difference_interval(gained, lost, n):
    p, q = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    d = p - q; s = 1.959963984540054 * math.sqrt((p + q - d * d) / (n + 2)); return max(-1.0, d - s), min(1.0, d + s)
def cohens_h(t, b): return 2 * math.asin(math.sqrt(t)) - 2 * math.asin(math.sqrt(b))
def mcnemar_power(n, gained, lost, alpha):
    from scipy.stats import binom
    import numpy as np
    tot = 0.0
    for m in range(n + 1):
        pm = binom.pmf(m, n, gained + lost)
        if pm < 1e-12: continue
        ks = np.arange(m + 1); p = np.minimum(1, 2 * np.minimum(binom.cdf(ks, m, .5), binom.sf(ks - 1, m, .5)))
        tot += pm * binom.pmf(ks[p < alpha], m, gained / (gained + lost)).sum()
    return float(tot)
def required_n(gained, lost, alpha, power, limit=100000):
    n = 8
    while n < 2000:
        if mcnemar_power(n, gained, lost, alpha) >= power: return n
        n += 4
    return None
