// Time of a training step of GPT-2 with llm.c's train_gpt2.c, which is compiled into this program from a copy of llm.c
// outside of this repository: gpt2_llmc STEPS FILE. FILE is what bench/gpt2.star has written, in safetensors.
#define TESTING
#include "train_gpt2.c"

#include <sys/resource.h>

enum { B = 4, T = 64, WARMUP = 10 };

static FILE *file;
static char *header;
static long start; // of the tensors' bytes

// Reads a tensor of n elements of a size.
static void read_tensor(const char *name, void *to, size_t n, size_t size) {
    char key[200];
    snprintf(key, sizeof key, "\"%s\":", name);
    char *at = strstr(header, key);
    at = at ? strstr(at, "\"data_offsets\":[") : NULL;
    size_t from, end;
    if (!at || sscanf(at + strlen("\"data_offsets\":["), "%zu,%zu", &from, &end) != 2 || end - from != n * size ||
        fseek(file, start + (long)from, SEEK_SET) || fread(to, size, n, file) != n) {
        fprintf(stderr, "cannot read %s with %zu elements\n", name, n);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3 || !(file = fopen(argv[2], "rb"))) return fprintf(stderr, "usage: gpt2_llmc STEPS FILE\n"), 2;
    uint64_t length = 0;
    if (fread(&length, sizeof length, 1, file) != 1 || !(header = calloc(1, length + 1)) || fread(header, 1, length, file) != length) return 1;
    start = 8 + (long)length;

    static GPT2 model; // zeros
    model.config = (GPT2Config){.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304, .num_layers = 12, .num_heads = 12, .channels = 768};
    fill_in_parameter_sizes(model.param_sizes, model.config);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) model.num_parameters += model.param_sizes[i];
    model.params_memory = malloc_and_point_parameters(&model.params, model.param_sizes);
    memset(model.params_memory, 0, model.num_parameters * sizeof(float));
    model.mean_loss = -1.0f;

    ParameterTensors p = model.params;
    size_t C = 768;
    read_tensor("model.tokens.weight", p.wte, 50257 * C, 4);
    read_tensor("model.positions.weight", p.wpe, 1024 * C, 4);
    read_tensor("model.norm.weight", p.lnfw, C, 4);
    read_tensor("model.norm.bias", p.lnfb, C, 4);
    struct { const char *name; float *to; size_t n; } parts[] = {
        {"before_attention.weight", p.ln1w, C}, {"before_attention.bias", p.ln1b, C}, {"qkv.weight", p.qkvw, 3 * C * C},
        {"qkv.bias", p.qkvb, 3 * C}, {"out.weight", p.attprojw, C * C}, {"out.bias", p.attprojb, C},
        {"before_mlp.weight", p.ln2w, C}, {"before_mlp.bias", p.ln2b, C}, {"expand.weight", p.fcw, 4 * C * C},
        {"expand.bias", p.fcb, 4 * C}, {"contract.weight", p.fcprojw, 4 * C * C}, {"contract.bias", p.fcprojb, C}};
    for (int l = 0; l < 12; l++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[100];
            snprintf(name, sizeof name, "model.blocks.%d.%s", l, parts[i].name);
            read_tensor(name, parts[i].to + l * parts[i].n, parts[i].n, 4);
        }
    int64_t tokens[2][B * T];
    int inputs[2][B * T];
    read_tensor("x", tokens[0], B * T, 8);
    read_tensor("y", tokens[1], B * T, 8);
    for (int i = 0; i < B * T; i++) inputs[0][i] = (int)tokens[0][i], inputs[1][i] = (int)tokens[1][i];

    int steps = atoi(argv[1]);
    float loss = 0;
    struct timespec from, to;
    for (int i = 0; i < WARMUP + steps; i++) {
        if (i == WARMUP) clock_gettime(CLOCK_MONOTONIC, &from);
        gpt2_forward(&model, inputs[0], inputs[1], B, T);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, i + 1);
        if (i == WARMUP - 1) loss = model.mean_loss;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("gpt2 step: %.5f ms\n", ((to.tv_sec - from.tv_sec) * 1e3 + (to.tv_nsec - from.tv_nsec) / 1e6) / steps);
    printf("gpt2 loss: %.5f nats\n", loss);
    printf("gpt2 memory: %.1f MiB\n", used.ru_maxrss / 1024.0);
}
