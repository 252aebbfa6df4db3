"""Many machines: asked by the engines that people have, judged here, grouped by what differs from the majority."""
