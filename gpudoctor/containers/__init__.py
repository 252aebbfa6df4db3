"""Container images and the engines that run them."""
