"""Mixed precision: layers compute in bfloat16, weights and gradients stay float32."""

import torch

from trireme import RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, get_device, prepare_model


def train(config):
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    device = get_device()
    # float16 is for older GPUs; its small gradients vanish unless the loss is scaled. bfloat16 needs no scaler.
    dtype = torch.float16 if config["dtype"] == "float16" else torch.bfloat16
    scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
    inputs = torch.randn(64, 8, device=device)
    targets = inputs.sum(1, keepdim=True)
    for _ in range(60):
        with torch.autocast(device.type, dtype):
            outputs = model(inputs)
            loss = torch.nn.functional.mse_loss(outputs, targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    weights = {str(parameter.dtype) for parameter in model.parameters()}
    return f"outputs in {outputs.dtype}, weights in {', '.join(weights)}, loss {loss.item():.3f}"


if __name__ == "__main__":
    # Some virtual machines advertise AMX but do not allow it (SIGILL). Without AMX, bfloat16 works on every CPU.
    variables = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    trainer = TorchTrainer(
        train,
        train_loop_config={"dtype": "bfloat16"},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(worker_runtime_env={"env_vars": variables}),
    )
    print(trainer.fit().return_value)
