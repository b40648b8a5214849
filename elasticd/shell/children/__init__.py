"""The node's trainers and reducers as processes."""
