"""Models that can play the builder. The SDKs are imported only when such a builder is made."""
