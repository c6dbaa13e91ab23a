"""What runs on the pod."""
