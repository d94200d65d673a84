/* The one plain file that holds the GPUs of a simulated VM, shared by all its processes under flock(2).
 *
 *     [system]
 *     driver = 550.163.01
 *     [gpu.0]
 *     name = Tesla T4
 */
#ifndef GPUPREP_SIM_STATE_H
#define GPUPREP_SIM_STATE_H

#include <stdbool.h>
#include <stddef.h>

typedef int nvmlReturn_t;
enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18, IN_USE = 19, VERSION_MISMATCH = 25, DEPRECATED = 26, UNKNOWN_ERROR = 999,
};

/* A device handle is the address of its slot. */
typedef struct { char unused; } *nvmlDevice_t;

struct call {
    nvmlReturn_t result;
    int gpu;
};

/* Begin a call: takes the lock, reads the state. `writing` calls need root. leave() ends it. */
struct call enter_system(bool writing);
struct call enter_gpu(nvmlDevice_t device, bool writing);
void leave(struct call *call);

#define SYSTEM() \
    __attribute__((cleanup(leave))) struct call call = enter_system(false); \
    if (call.result != OK) return call.result
#define GPU(device) \
    __attribute__((cleanup(leave))) struct call call = enter_gpu(device, false); \
    if (call.result != OK) return call.result
#define SET_GPU(device) \
    __attribute__((cleanup(leave))) struct call call = enter_gpu(device, true); \
    if (call.result != OK) return call.result

/* Values of a section: -1 is [system], 0 and up are GPUs. Valid between enter and leave. */
const char *text(int gpu, const char *key);
bool has(int gpu, const char *key);
long number(int gpu, const char *key, long otherwise);
void set_number(int gpu, const char *key, long value);
void forget(int gpu, const char *key);

/* The driver's settings that no GPU keeps: they go with its last client, and with a reset. */
void forget_settings(int gpu);

/* Has another process NVML open? Only root can tell: true for others. */
bool others_have_it_open(void);

/* What a getter does: NOT_SUPPORTED where the GPU has no such value. */
nvmlReturn_t give_number(int gpu, const char *key, unsigned int *into);
nvmlReturn_t give_text(int gpu, const char *key, char *into, unsigned int size);
nvmlReturn_t copy_text(const char *value, char *into, unsigned int size);
nvmlReturn_t give_list(int gpu, const char *key, unsigned int *count, unsigned int *into);
bool in_list(int gpu, const char *key, unsigned int value);

/* mW; the lower of what was set and what a fault caps it to. */
unsigned int enforced_power_limit(int gpu);

/* Packets that the link sent again since the computer started. */
unsigned int pcie_replays(int gpu);

/* What runs on a GPU (loads.c): each piece of work, or all together (highest clocks, sums of use). 0 is "not told". */
enum { MAX_LOADS = 256 };
struct load {
    long pid, graphics, memory, power_mw, temperature, event_reasons, utilization, memory_mib, encoder, decoder;
    long codec, width, height, fps; /* of an encoder session; codec -1: it is none */
};
int loads(int gpu, struct load *into, int room);
struct load load_of(int gpu, int *count);

/* Instances of a GPU that is cut (mig.c): they are gone with a reset. */
void forget_instances(int gpu);

/* What `nvidia-smi -r` does with one GPU. */
nvmlReturn_t reset_gpu(nvmlDevice_t device);

/* The path of a file of the state folder. */
const char *state_path(const char *name, char *into, size_t size);

int gpu_count(void);
nvmlDevice_t handle_of(int gpu);

/* Is the loaded driver's branch at least this? Functions newer than it do not exist in its library. */
bool branch_at_least(int branch);

#endif
