"""Store model, optimizer, schedule and random state in files that Python and C++ read, and resume from them."""

import sys
import tempfile

import torch

import trireme


def make():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def train(model, optimizer, schedule):
    loss = (model(torch.randn(8, 4)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    model, optimizer, schedule = make()
    for _ in range(5):
        train(model, optimizer, schedule)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "random": torch.get_rng_state(),
        "epoch": 5,
    }
    trireme.save_state(folder, state)
    expected = train(model, optimizer, schedule)

    loaded = trireme.load_state(folder)
    model, optimizer, schedule = make()
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    schedule.load_state_dict(loaded["schedule"])
    torch.set_rng_state(loaded["random"])
    found = train(model, optimizer, schedule)
    print(f"epoch {loaded['epoch']}: loss {found}, without the detour {expected}")
    assert found == expected
