"""What supervised and preference training share: model, data, masks, what a trainer is watched for, what it did."""
