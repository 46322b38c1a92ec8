// A plugin for qemu's user emulation: how many instructions a program executed. Declares what it needs of qemu-plugin.h.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t id;
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
void qemu_plugin_register_vcpu_tb_trans_cb(id, void (*)(id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int add, void *to, uint64_t by);
void qemu_plugin_register_atexit_cb(id, void (*)(id, void *), void *);

int qemu_plugin_version = 1;
static uint64_t executed;

static void translated(id plugin, struct qemu_plugin_tb *tb) {
    qemu_plugin_register_vcpu_tb_exec_inline(tb, 0, &executed, qemu_plugin_tb_n_insns(tb));
}

static void ended(id plugin, void *data) { fprintf(stderr, "instructions %" PRIu64 "\n", executed); }

int qemu_plugin_install(id plugin, const void *info, int argc, char **argv) {
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    qemu_plugin_register_atexit_cb(plugin, ended, NULL);
    return 0;
}
