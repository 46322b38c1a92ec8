"""PyTorch Lightning with MLflow's autologging."""

import sys

sys.path += sys.argv[2:]  # where PyTorch is

import lightning
import mlflow
import torch

mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("lightning")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


mlflow.pytorch.autolog()
x = torch.randn(64, 4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
with mlflow.start_run() as run:
    lightning.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu").fit(Model(), data)
run = mlflow.get_run(run.info.run_id)
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss_epoch")
assert [m.step for m in history] == [0, 1, 2], history
assert run.data.params["optimizer_name"] == "SGD" and float(run.data.params["lr"]) == 0.05, run.data.params
assert run.outputs.model_outputs, run.outputs
print("lightning")
