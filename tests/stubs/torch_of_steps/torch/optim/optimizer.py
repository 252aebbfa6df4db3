# mypy: ignore-errors
hooks = []


def register_optimizer_step_post_hook(hook):
    hooks.append(hook)


class SGD:
    def __init__(self):
        self.param_groups, self.state = (), {}

    def step(self):
        for hook in hooks:
            hook(self, (), {})
