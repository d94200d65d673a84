/* The NVML functions that change something other than clocks. */
#include "state.h"

#include <stddef.h>

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, int mode)
{
    SET_GPU(device);
    if (mode != 0 && mode != 1)
        return INVALID_ARGUMENT;
    if (!number(call.gpu, "fault_persistence_stuck", 0))
        set_number(call.gpu, "persistence", mode);
    return OK;
}

struct power { unsigned int version; unsigned char scope; unsigned int milliwatts; }; /* nvidia-smi leaves the bytes between them unset */

static nvmlReturn_t set_power_limit(nvmlDevice_t device, unsigned int milliwatts)
{
    SET_GPU(device);
    if ((long)milliwatts < number(call.gpu, "power_min_mw", 0) || (long)milliwatts > number(call.gpu, "power_max_mw", 0))
        return INVALID_ARGUMENT;
    set_number(call.gpu, "power_limit_mw", milliwatts);
    return OK;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatts)
{
    return set_power_limit(device, milliwatts);
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, const struct power *wanted)
{
    if (wanted == NULL || wanted->scope != 0) /* 0 is the GPU; modules and memory have limits of their own */
        return wanted == NULL ? INVALID_ARGUMENT : NOT_SUPPORTED;
    return wanted->version == (sizeof *wanted | 2U << 24) ? set_power_limit(device, wanted->milliwatts) : VERSION_MISMATCH;
}

nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, int mode)
{
    SET_GPU(device);
    if (!has(call.gpu, "ecc"))
        return NOT_SUPPORTED;
    if (mode != 0 && mode != 1)
        return INVALID_ARGUMENT;
    set_number(call.gpu, "ecc_pending", mode); /* becomes current at the next boot */
    return OK;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, int mode)
{
    SET_GPU(device);
    const int exclusive_thread = 1; /* gone since CUDA 8 */
    if (mode < 0 || mode > 3 || mode == exclusive_thread)
        return INVALID_ARGUMENT;
    set_number(call.gpu, "compute_mode", mode);
    return OK;
}

nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, int counter)
{
    SET_GPU(device);
    if (counter != 0 && counter != 1)
        return INVALID_ARGUMENT;
    set_number(call.gpu, counter ? "ecc_corrected" : "ecc_corrected_volatile", 0);
    set_number(call.gpu, counter ? "ecc_uncorrected" : "ecc_uncorrected_volatile", 0);
    return OK;
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, int mode)
{
    SET_GPU(device);
    set_number(call.gpu, "accounting", mode != 0);
    return OK;
}

/* A mode that was chosen for the next start of the GPU counts from now on; what waited to be repaired is repaired; errors
 * are counted anew. */
nvmlReturn_t reset_gpu(nvmlDevice_t device)
{
    SET_GPU(device);
    int working;
    load_of(call.gpu, &working);
    if (working || others_have_it_open())
        return IN_USE;
    static const char *const pending[][2] = {{"ecc_pending", "ecc"}, {"mig_pending", "mig"}};
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++)
        if (has(call.gpu, pending[i][0]))
            set_number(call.gpu, pending[i][1], number(call.gpu, pending[i][0], 0));
    static const char *const gone[] = {"remap_pending", "retired_pages_pending", "ecc_corrected_volatile",
                                       "ecc_uncorrected_volatile", "compute_mode"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (has(call.gpu, gone[i]))
            set_number(call.gpu, gone[i], 0);
    forget_settings(call.gpu);
    forget_instances(call.gpu);
    return OK;
}
