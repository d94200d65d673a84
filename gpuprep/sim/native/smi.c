/* What the real nvidia-smi asks for beyond the public functions: one table of internal functions.
 *
 * nvidia-smi finds GPUs and their processes through that table, which has no header. What is known of its slots was
 * learned by others from nvidia-smi's calls (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml) and seen here with 535 and 550. */
#include "state.h"

#include <stdint.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);

#define IS_PRIMARY 20
#define DEVICE_BY_INDEX 81
#define ENFORCED_POWER_LIMIT 108
#define RESET 168
#define FABRIC_STATE 169
#define FIRST_PROCESS_LIST 213
#define LAST_PROCESS_LIST 215
#define HOST_MAX_PCIE_GENERATION 230

static bool is_device(const void *pointer)
{
    SYSTEM();
    for (int gpu = 0; gpu < gpu_count(); gpu++)
        if (pointer == (void *)handle_of(gpu))
            return true;
    return false;
}

/* What `nvidia-smi -r` calls. It says which GPUs are in use only where the whole is UNKNOWN_ERROR; else it prints the whole's. */
static nvmlReturn_t reset(unsigned int count, nvmlDevice_t *devices, nvmlReturn_t *results)
{
    nvmlReturn_t whole = OK;
    for (unsigned int i = 0; i < count; i++) {
        results[i] = reset_gpu(devices[i]);
        if (results[i] != OK)
            whole = results[i] == IN_USE ? UNKNOWN_ERROR : results[i];
    }
    return whole;
}

/* Called by every slot of the table (stubs.c, generated). */
long internal_call(unsigned int slot, void *first, void *second, void *third)
{
    if (slot == DEVICE_BY_INDEX)
        return nvmlDeviceGetHandleByIndex_v2((unsigned int)(uintptr_t)first, second);
    if (slot == RESET)
        return reset((unsigned int)(uintptr_t)first, second, third);
    if (slot == FABRIC_STATE) {
        *(unsigned int *)first = 0; /* no NVSwitch to reset together with the GPU */
        return OK;
    }
    if (!is_device(first))
        return OK; /* bookkeeping of nvidia-smi itself */
    GPU(first);
    if (slot >= FIRST_PROCESS_LIST && slot <= LAST_PROCESS_LIST) {
        *(unsigned int *)second = 0; /* until then it is the room in the caller's buffer */
        return OK;
    }
    if (slot == IS_PRIMARY) { /* of a display: it cannot be reset. What the third says is not known */
        *(unsigned int *)second = *(unsigned int *)third = 0;
        return OK;
    }
    if (slot == ENFORCED_POWER_LIMIT) {
        *(unsigned int *)second = enforced_power_limit(call.gpu);
        return OK;
    }
    return slot == HOST_MAX_PCIE_GENERATION ? give_number(call.gpu, "pcie_generation", second) : NOT_SUPPORTED;
}

extern void *internal_slots[];

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const unsigned char *id)
{
    static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    if (table == NULL || id == NULL || memcmp(id, known, sizeof known) != 0)
        return NOT_SUPPORTED;
    *table = internal_slots;
    return OK;
}
