"""What is below the trail: a hash tree, signed entries, signed heads, keys and the policy that gives them roles."""
