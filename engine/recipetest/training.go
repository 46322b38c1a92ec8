package recipetest

// Training is a recipe that trains a small model, and saves its state after the steps 0, 6, 12 and so on: for tests of what
// a whole run leaves behind.
const Training = `
p = run.params(lr = 0.01, hidden = 16)

def main():
    model = nn.sequential(nn.linear(8, p.hidden), nn.tanh(), nn.linear(p.hidden, 1))
    dist.broadcast_tensors(model.parameters())
    opt = optim.adam(model.parameters(), lr = p.lr)
    state = {"model": model, "opt": opt, "step": -1}
    checkpoint.restore(state)
    for step in range(state["step"] + 1, 24):
        loss = model(tensor.randn(32, 8)).square().mean()
        loss.backward()
        dist.sync_grad(model.parameters())
        opt.step()
        opt.zero_grad()
        run.log(loss = loss.item(), step = step)
        run.log(seconds = run.elapsed(), step = step, exact = False)
        state["step"] = step
        if step % 6 == 0:
            run.histogram("weights", model.parameters()[0], step = step)
            checkpoint.save(state, step = step, score = -loss.item())
`
