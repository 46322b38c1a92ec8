// Latency of gloo::allreduce of float32 by size over the loopback interface, without PyTorch around it.
// Build: g++ -O2 -std=c++17 allreduce_gloo.cc -lgloo. Run once a rank: allreduce_gloo FOLDER, with RANK and WORLD_SIZE set.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

static void add(void* out, const void* a, const void* b, size_t n) {
  auto sum = static_cast<float*>(out);
  auto left = static_cast<const float*>(a), right = static_cast<const float*>(b);
  for (size_t i = 0; i < n; i++) sum[i] = left[i] + right[i];
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int rank = std::atoi(std::getenv("RANK")), world = std::atoi(std::getenv("WORLD_SIZE"));
  gloo::transport::tcp::attr loopback;
  loopback.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(loopback);
  gloo::rendezvous::FileStore store(argv[1]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, world);
  context->connectFullMesh(store, device);

  const struct { size_t bytes; int calls; } sizes[] = {
      {4, 1000}, {256, 1000}, {4096, 1000}, {65536, 300}, {1 << 20, 100}, {16 << 20, 6}, {64 << 20, 4}};
  for (const auto& size : sizes) {
    std::vector<float> x(size.bytes / 4, 1);
    gloo::AllreduceOptions options(context);
    options.setOutput(x.data(), x.size());
    options.setReduceFunction(add);
    for (int i = 0; i < size.calls / 10 + 2; i++) gloo::allreduce(options);
    auto started = std::chrono::steady_clock::now();
    for (int i = 0; i < size.calls; i++) gloo::allreduce(options);
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - started;
    if (rank == 0) std::printf("all_reduce %zu B: %.5f us\n", size.bytes, took.count() / size.calls);
  }
}
