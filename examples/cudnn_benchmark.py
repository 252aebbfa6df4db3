"""cudnn.benchmark with changing shapes: cuDNN times its algorithms again for every new image size.

Problem: the search costs many times the convolution, and each shape is seen once.
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    place = device()
    model = torch.nn.Conv2d(32, 32, 3).to(place)
    width = 64
    train = work(place, 5)

    def step():
        global width
        width = 64 + (width - 63) % 448
        model(torch.randn(8, 32, 64, width, device=place))
        train()

    run(step)
