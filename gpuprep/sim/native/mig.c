/* MIG: a GPU cut into instances, on the models that have it. Each GPU instance has at most one compute instance here, and that
 * one has all of it, as `nvidia-smi mig -cgi ... -C` makes them. Names, argument order and structures are those of nvml.h. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_ENOUGH = 23, RESET_REQUIRED = 16, MOST_IDS = 16, MEMORY_SLICES = 8, FIRST_ID = 1 };

/* Profiles in the order of gpus.yml: NVML's number of a call, the profile's id, its slices, how many fit, where they may start. */
static const struct profile { unsigned int number, id, slices, count, size; const char *starts; } PROFILES[] = {
    {0x0, 19, 1, 7, 1, "0123456"}, {0x7, 20, 1, 1, 1, "0123456"}, {0x9, 15, 1, 4, 2, "0246"}, {0x1, 14, 2, 3, 2, "024"},
    {0x2, 9, 3, 2, 4, "04"},       {0x3, 5, 4, 1, 4, "0"},        {0x4, 0, 7, 1, 8, "0"},
};
enum { KINDS = sizeof PROFILES / sizeof *PROFILES, MAX_GPUS = 16 };

typedef struct { char unused; } *handle;
enum which { GPU_INSTANCE, COMPUTE_INSTANCE, DEVICE };
static char handles[3][MAX_GPUS * MOST_IDS]; /* a handle is the address of its slot */

/* An instance that is there: its profile, where it lies, and whether it has its compute instance. */
struct instance { int kind; unsigned int start; bool computes; };

static const char *key_of(unsigned int id, char *into)
{
    sprintf(into, "instance_%u", id % MOST_IDS);
    return into;
}

static bool instance_of(int gpu, unsigned int id, struct instance *into)
{
    char key[32];
    if (id >= MOST_IDS || !has(gpu, key_of(id, key)))
        return false;
    long value = number(gpu, key, 0); /* kind, start, whether it computes: a digit each */
    *into = (struct instance){(int)(value / 100) % KINDS, (unsigned int)(value / 10) % 10, value % 10 != 0};
    return true;
}

static void put_instance(int gpu, unsigned int id, struct instance instance)
{
    char key[32];
    set_number(gpu, key_of(id, key), instance.kind * 100 + (long)instance.start * 10 + instance.computes);
}

void forget_instances(int gpu)
{
    char key[32];
    for (unsigned int id = 0; id < MOST_IDS; id++)
        forget(gpu, key_of(id, key));
}

static unsigned int slices_taken(int gpu)
{
    unsigned int taken = 0;
    struct instance found;
    for (unsigned int id = 0; id < MOST_IDS; id++)
        if (instance_of(gpu, id, &found))
            taken |= ((1U << PROFILES[found.kind].size) - 1) << found.start;
    return taken;
}

/* The word at this place of a list that is separated by spaces. */
static void word_of(int gpu, const char *key, int place, char *into, size_t size)
{
    const char *at = text(gpu, key);
    while (place-- > 0 && *at != '\0')
        at += strcspn(at, " "), at += *at == ' ';
    snprintf(into, size, "%.*s", (int)strcspn(at, " "), at);
}

static unsigned int figure_of(int gpu, const char *key, int place)
{
    char word[32];
    word_of(gpu, key, place, word, sizeof word);
    return (unsigned int)strtoul(word, NULL, 10);
}

static int kind_by_id(unsigned int id)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (PROFILES[kind].id == id)
            return kind;
    return -1;
}

static void *handle_to(enum which which, int gpu, unsigned int id)
{
    return &handles[which][gpu * MOST_IDS + (int)id];
}

/* A handle of an instance: the GPU that it is of, and its id. */
static struct call enter_instance(handle of, enum which which, bool writing, unsigned int *id)
{
    long slot = of == NULL ? -1 : (char *)of - handles[which];
    if (slot < 0 || slot >= MAX_GPUS * MOST_IDS)
        return (struct call){INVALID_ARGUMENT, -2};
    *id = (unsigned int)slot % MOST_IDS;
    return enter_gpu(handle_of((int)slot / MOST_IDS), writing);
}

#define INSTANCE(of, which, writing) \
    unsigned int id = 0; \
    struct instance here; \
    __attribute__((cleanup(leave))) struct call call = enter_instance(of, which, writing, &id); \
    if (call.result != OK) return call.result; \
    if (!instance_of(call.gpu, id, &here) || (which != GPU_INSTANCE && !here.computes)) return NOT_FOUND

static bool divided(int gpu)
{
    return number(gpu, "mig", 0) != 0;
}

/* The mode */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    GPU(device);
    if (!number(call.gpu, "mig_capable", 0))
        return NOT_SUPPORTED;
    *current = (unsigned int)number(call.gpu, "mig", 0);
    *pending = (unsigned int)number(call.gpu, "mig_pending", 0);
    return OK;
}

/* Hopper changes at once. Ampere needs a reset of the GPU, which a virtual machine cannot do: it waits for a reboot. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
    SET_GPU(device);
    int working;
    if (!number(call.gpu, "mig_capable", 0))
        return NOT_SUPPORTED;
    if (mode > 1)
        return INVALID_ARGUMENT;
    load_of(call.gpu, &working);
    bool changes = (unsigned int)number(call.gpu, "mig", 0) != mode;
    if (changes && (working || slices_taken(call.gpu)))
        return IN_USE;
    set_number(call.gpu, "mig_pending", mode);
    *activation = OK;
    if (changes && number(call.gpu, "mig_kept", 0))
        *activation = RESET_REQUIRED;
    else
        set_number(call.gpu, "mig", mode);
    return OK;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    GPU(device);
    *count = divided(call.gpu) ? 7 : 0; /* as on a real H200 without MIG: 0 */
    return OK;
}

/* Profiles. A GPU tells them without MIG, too. */

/* A decoder a slice on Hopper, one for two on Ampere. */
static unsigned int decoders(int gpu, unsigned int slices)
{
    return number(gpu, "mig_kept", 0) ? slices / 2 : slices;
}

struct figures { unsigned int id, p2p, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa; unsigned long long memory_mib; };
struct figures_2 { unsigned int version, id, p2p, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
                   unsigned long long memory_mib; char name[96]; };

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number_of, struct figures_2 *into)
{
    GPU(device);
    char name[64];
    if (into == NULL || number_of > 0x20)
        return INVALID_ARGUMENT;
    for (int kind = 0; kind < KINDS && has(call.gpu, "mig_names"); kind++) {
        const struct profile *one = &PROFILES[kind];
        if (one->number != number_of)
            continue;
        unsigned int own = one->id == 20 || one->id == 0; /* 1g+me and the whole GPU have the OFA */
        *into = (struct figures_2){into->version, one->id, 0, one->slices, one->count, figure_of(call.gpu, "mig_multiprocessors", kind),
                                   one->slices, decoders(call.gpu, one->slices), 0, decoders(call.gpu, one->slices), own,
                                   figure_of(call.gpu, "mig_memory_mib", kind), ""};
        word_of(call.gpu, "mig_names", kind, name, sizeof name);
        snprintf(into->name, sizeof into->name, "MIG %s", name);
        return OK;
    }
    return NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number_of, struct figures *into)
{
    struct figures_2 found = {.version = 0};
    nvmlReturn_t result = nvmlDeviceGetGpuInstanceProfileInfoV(device, number_of, &found);
    if (result == OK)
        *into = (struct figures){found.id, found.p2p, found.slices, found.instances, found.multiprocessors, found.copy,
                                 found.decoder, found.encoder, found.jpeg, found.ofa, found.memory_mib};
    return result;
}

struct place { unsigned int start, size; };

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profile, struct place *into, unsigned int *count)
{
    GPU(device);
    int kind = kind_by_id(profile);
    if (kind < 0 || count == NULL || !has(call.gpu, "mig_names"))
        return INVALID_ARGUMENT;
    unsigned int every = (unsigned int)strlen(PROFILES[kind].starts), room = *count;
    *count = every;
    if (into == NULL)
        return OK;
    for (unsigned int i = 0; i < every && i < room; i++)
        into[i] = (struct place){(unsigned int)(PROFILES[kind].starts[i] - '0'), PROFILES[kind].size};
    return every <= room ? OK : INSUFFICIENT_SIZE;
}

static unsigned int mask_at(const struct profile *one, unsigned int start)
{
    return ((1U << one->size) - 1) << start;
}

static bool may_start(const struct profile *one, unsigned int start)
{
    return start < MEMORY_SLICES && strchr(one->starts, (int)('0' + start)) != NULL;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile, unsigned int *count)
{
    GPU(device);
    int kind = kind_by_id(profile);
    if (kind < 0)
        return INVALID_ARGUMENT;
    unsigned int taken = slices_taken(call.gpu);
    *count = 0;
    for (unsigned int start = 0; start < MEMORY_SLICES && divided(call.gpu); start++)
        if (may_start(&PROFILES[kind], start) && !(taken & mask_at(&PROFILES[kind], start)))
            taken |= mask_at(&PROFILES[kind], start), ++*count;
    return OK;
}

/* GPU instances */

static nvmlReturn_t create(nvmlDevice_t device, unsigned int profile, const struct place *place, handle *into)
{
    SET_GPU(device);
    int kind = kind_by_id(profile);
    if (!divided(call.gpu))
        return NOT_SUPPORTED;
    if (kind < 0 || into == NULL)
        return INVALID_ARGUMENT;
    const struct profile *one = &PROFILES[kind];
    unsigned int taken = slices_taken(call.gpu), id = FIRST_ID, of_kind = 0;
    struct instance other;
    for (unsigned int i = 0; i < MOST_IDS; i++)
        of_kind += instance_of(call.gpu, i, &other) && other.kind == kind;
    for (unsigned int start = 0; start < MEMORY_SLICES && of_kind < one->count; start++) {
        if ((place != NULL && place->start != start) || !may_start(one, start) || taken & mask_at(one, start))
            continue;
        while (instance_of(call.gpu, id, &other))
            id++;
        put_instance(call.gpu, id, (struct instance){kind, start, false});
        *into = handle_to(GPU_INSTANCE, call.gpu, id);
        return OK;
    }
    return NOT_ENOUGH;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile, handle *into)
{
    return create(device, profile, NULL, into);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile, const struct place *place, handle *into)
{
    return place == NULL ? INVALID_ARGUMENT : create(device, profile, place, into);
}

nvmlReturn_t nvmlGpuInstanceDestroy(handle instance)
{
    INSTANCE(instance, GPU_INSTANCE, true);
    int working;
    char key[32];
    load_of(call.gpu, &working); /* which instance work runs on is not simulated: it may be on this one */
    if (here.computes || working)
        return IN_USE;
    forget(call.gpu, key_of(id, key));
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile, handle *into, unsigned int *count)
{
    GPU(device);
    int kind = kind_by_id(profile);
    struct instance found;
    if (kind < 0 || into == NULL || count == NULL)
        return INVALID_ARGUMENT;
    *count = 0; /* without MIG, too: seen on a real H200 */
    for (unsigned int id = 0; id < MOST_IDS; id++)
        if (instance_of(call.gpu, id, &found) && found.kind == kind)
            into[(*count)++] = handle_to(GPU_INSTANCE, call.gpu, id);
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, handle *into)
{
    GPU(device);
    struct instance found;
    if (into == NULL || !instance_of(call.gpu, id, &found))
        return into == NULL ? INVALID_ARGUMENT : NOT_FOUND;
    *into = handle_to(GPU_INSTANCE, call.gpu, id);
    return OK;
}

struct instance_info { nvmlDevice_t device; unsigned int id, profile; struct place place; };

nvmlReturn_t nvmlGpuInstanceGetInfo(handle instance, struct instance_info *into)
{
    INSTANCE(instance, GPU_INSTANCE, false);
    if (into == NULL)
        return INVALID_ARGUMENT;
    *into = (struct instance_info){handle_of(call.gpu), id, PROFILES[here.kind].id, {here.start, PROFILES[here.kind].size}};
    return OK;
}

/* Compute instances: the profile of a GPU instance that has all of its slices, numbered as NVML's calls number them */

static const unsigned int COMPUTE_IDS[][2] = {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {7, 4}}; /* slices, number and id */
enum { COMPUTE_KINDS = sizeof COMPUTE_IDS / sizeof *COMPUTE_IDS };

static unsigned int compute_id(unsigned int slices)
{
    unsigned int found = 0;
    for (int i = 0; i < COMPUTE_KINDS; i++)
        if (COMPUTE_IDS[i][0] == slices)
            found = COMPUTE_IDS[i][1];
    return found;
}

struct compute_figures { unsigned int version, id, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa; char name[96]; };

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle instance, unsigned int number_of, unsigned int engines, struct compute_figures *into)
{
    INSTANCE(instance, GPU_INSTANCE, false);
    char name[64];
    if (into == NULL || engines != 0)
        return INVALID_ARGUMENT;
    unsigned int slices = PROFILES[here.kind].slices;
    if (number_of != compute_id(slices))
        return NOT_SUPPORTED;
    *into = (struct compute_figures){into->version, number_of, slices, 1, figure_of(call.gpu, "mig_multiprocessors", here.kind), slices,
                                     decoders(call.gpu, slices), 0, 0, 0, ""};
    word_of(call.gpu, "mig_names", here.kind, name, sizeof name);
    snprintf(into->name, sizeof into->name, "MIG %s", name);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(handle instance, unsigned int profile, handle *into)
{
    INSTANCE(instance, GPU_INSTANCE, true);
    if (into == NULL || profile != compute_id(PROFILES[here.kind].slices))
        return INVALID_ARGUMENT;
    if (here.computes)
        return NOT_ENOUGH;
    here.computes = true;
    put_instance(call.gpu, id, here);
    *into = handle_to(COMPUTE_INSTANCE, call.gpu, id);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(handle instance, unsigned int profile, handle *into, unsigned int *count)
{
    INSTANCE(instance, GPU_INSTANCE, false);
    if (into == NULL || count == NULL)
        return INVALID_ARGUMENT;
    *count = here.computes && profile == compute_id(PROFILES[here.kind].slices);
    if (*count)
        *into = handle_to(COMPUTE_INSTANCE, call.gpu, id);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(handle instance, unsigned int compute, handle *into)
{
    INSTANCE(instance, GPU_INSTANCE, false);
    if (into == NULL || compute != 0 || !here.computes)
        return into == NULL ? INVALID_ARGUMENT : NOT_FOUND;
    *into = handle_to(COMPUTE_INSTANCE, call.gpu, id);
    return OK;
}

struct compute_info { nvmlDevice_t device; handle gpu_instance; unsigned int id, profile; struct place place; };

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(handle compute, struct compute_info *into)
{
    INSTANCE(compute, COMPUTE_INSTANCE, false);
    if (into == NULL)
        return INVALID_ARGUMENT;
    unsigned int slices = PROFILES[here.kind].slices;
    *into = (struct compute_info){handle_of(call.gpu), handle_to(GPU_INSTANCE, call.gpu, id), 0, compute_id(slices),
                                  {0, slices}};
    return OK;
}

nvmlReturn_t nvmlComputeInstanceDestroy(handle compute)
{
    INSTANCE(compute, COMPUTE_INSTANCE, true);
    int working;
    load_of(call.gpu, &working);
    if (working)
        return IN_USE;
    here.computes = false;
    put_instance(call.gpu, id, here);
    return OK;
}

/* What programs see: a device for each compute instance */

static bool is_instance(nvmlDevice_t device)
{
    return (char *)device >= handles[DEVICE] && (char *)device < handles[DEVICE] + sizeof handles[DEVICE];
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *answer)
{
    *answer = is_instance(device);
    if (*answer)
        return OK;
    GPU(device);
    return OK;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *into)
{
    GPU(device);
    struct instance found;
    if (into == NULL || index >= 7)
        return INVALID_ARGUMENT;
    for (unsigned int id = 0; id < MOST_IDS; id++)
        if (instance_of(call.gpu, id, &found) && found.computes && index-- == 0) {
            *into = (nvmlDevice_t)handle_to(DEVICE, call.gpu, id);
            return OK;
        }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *into)
{
    INSTANCE((handle)device, DEVICE, false);
    *into = handle_of(call.gpu);
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *into)
{
    INSTANCE((handle)device, DEVICE, false);
    *into = id;
    return OK;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *into)
{
    INSTANCE((handle)device, DEVICE, false);
    *into = 0;
    return OK;
}

struct attributes { unsigned int multiprocessors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices; unsigned long long memory_mib; };

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, struct attributes *into)
{
    if (!is_instance(device)) { /* as on a real H200: without MIG a GPU has no attributes */
        GPU(device);
        if (!divided(call.gpu))
            return NOT_SUPPORTED;
        *into = (struct attributes){(unsigned int)number(call.gpu, "multiprocessors", 0), 0, 0, 0, 0, 0, 0, 0,
                                    (unsigned long long)number(call.gpu, "memory_mib", 0)};
        return OK;
    }
    INSTANCE((handle)device, DEVICE, false);
    unsigned int slices = PROFILES[here.kind].slices;
    *into = (struct attributes){figure_of(call.gpu, "mig_multiprocessors", here.kind), slices, decoders(call.gpu, slices), 0, 0, 0, slices, slices,
                                figure_of(call.gpu, "mig_memory_mib", here.kind)};
    return OK;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *value, unsigned int size)
{
    if (!is_instance(device)) {
        GPU(device);
        return give_text(call.gpu, "name", value, size);
    }
    INSTANCE((handle)device, DEVICE, false);
    char name[64], whole[160];
    word_of(call.gpu, "mig_names", here.kind, name, sizeof name);
    snprintf(whole, sizeof whole, "%s MIG %s", text(call.gpu, "name"), name);
    return copy_text(whole, value, size);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *value, unsigned int size)
{
    if (!is_instance(device)) {
        GPU(device);
        return give_text(call.gpu, "uuid", value, size);
    }
    INSTANCE((handle)device, DEVICE, false);
    char whole[96];
    snprintf(whole, sizeof whole, "MIG-%.31s%05u", text(call.gpu, "uuid") + 4, here.kind * 1000U + here.start * 100U + id);
    return copy_text(whole, value, size);
}
