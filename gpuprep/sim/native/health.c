/* The NVML functions that read how a GPU is: temperature, power, load, event reasons, memory errors. */
#include "state.h"

#include <string.h>
#include <time.h>

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    GPU(device);
    *major = (int)number(call.gpu, "capability_major", 0);
    *minor = (int)number(call.gpu, "capability_minor", 0);
    return OK;
}

static nvmlReturn_t give_temperature(int gpu, int sensor, unsigned int *temperature)
{
    int working;
    struct load load = load_of(gpu, &working);
    nvmlReturn_t result = sensor == 0 ? give_number(gpu, "temperature", temperature) : INVALID_ARGUMENT;
    if (result == OK && load.temperature > (long)*temperature)
        *temperature = (unsigned int)load.temperature;
    return result;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *temperature)
{
    GPU(device);
    return give_temperature(call.gpu, sensor, temperature);
}

struct temperature { unsigned int version; int sensor; int temperature; };

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *into)
{
    GPU(device);
    if (!branch_at_least(570))
        return FUNCTION_NOT_FOUND;
    if (into->version != (sizeof *into | 1U << 24))
        return VERSION_MISMATCH;
    return give_temperature(call.gpu, into->sensor, (unsigned int *)&into->temperature);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int threshold, unsigned int *temperature)
{
    GPU(device);
    switch (threshold) {
    case 0: return give_number(call.gpu, "temperature_shutdown", temperature);
    case 1: return give_number(call.gpu, "temperature_slowdown", temperature);
    case 2: return give_number(call.gpu, "temperature_memory_max", temperature);
    case 3: return give_number(call.gpu, "temperature_max", temperature);
    default: return NOT_SUPPORTED;
    }
}

struct margin { unsigned int version; int margin; };

/* Degrees until the highest operating temperature; the hardware slows down a little later (field 194). */
nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, struct margin *into)
{
    GPU(device);
    unsigned int temperature = 0;
    if (!branch_at_least(570))
        return FUNCTION_NOT_FOUND;
    if (!has(call.gpu, "slowdown_after"))
        return NOT_SUPPORTED;
    nvmlReturn_t result = give_temperature(call.gpu, 0, &temperature);
    long slowdown = number(call.gpu, "temperature_slowdown", 0) - number(call.gpu, "slowdown_after", 0);
    into->margin = (int)(slowdown - (long)temperature);
    return result;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    GPU(device);
    int working;
    struct load load = load_of(call.gpu, &working);
    nvmlReturn_t result = give_number(call.gpu, "power_usage_mw", milliwatts);
    if (result == OK && load.power_mw > (long)*milliwatts)
        *milliwatts = (unsigned int)load.power_mw;
    return result;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    GPU(device);
    return give_number(call.gpu, has(call.gpu, "power_limit_mw") ? "power_limit_mw" : "power_default_mw", milliwatts);
}

unsigned int enforced_power_limit(int gpu)
{
    long set = number(gpu, "power_limit_mw", number(gpu, "power_default_mw", 0));
    long cap = number(gpu, "fault_power_cap_mw", set);
    return (unsigned int)(cap < set ? cap : set);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    GPU(device);
    *milliwatts = enforced_power_limit(call.gpu);
    return OK;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
    GPU(device);
    nvmlReturn_t result = give_number(call.gpu, "power_min_mw", least);
    return result == OK ? give_number(call.gpu, "power_max_mw", most) : result;
}

/* A link that sends packets again now has done so since the computer started. */
unsigned int pcie_replays(int gpu)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned int)(number(gpu, "pcie_replays", 0) + number(gpu, "pcie_replays_a_minute", 0) * now.tv_sec / 60);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value)
{
    GPU(device);
    *value = pcie_replays(call.gpu);
    return OK;
}

static unsigned int percent_of(long sum)
{
    return sum > 100 ? 100 : (unsigned int)sum;
}

struct utilization { unsigned int gpu, memory; };

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilization *into)
{
    GPU(device);
    int working;
    struct load load = load_of(call.gpu, &working);
    into->gpu = percent_of(number(call.gpu, "utilization", 0) + load.utilization);
    into->memory = into->gpu / 2;
    return OK;
}

static nvmlReturn_t engine_utilization(nvmlDevice_t device, bool encoder, unsigned int *percent, unsigned int *period)
{
    GPU(device);
    int working;
    struct load load = load_of(call.gpu, &working);
    *percent = percent_of(encoder ? load.encoder : load.decoder);
    *period = 167000;
    return OK;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned int *u, unsigned int *p) { return engine_utilization(d, true, u, p); }
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, unsigned int *u, unsigned int *p) { return engine_utilization(d, false, u, p); }

static nvmlReturn_t reasons(nvmlDevice_t device, unsigned long long *into)
{
    GPU(device);
    int working;
    struct load load = load_of(call.gpu, &working);
    const long idle = 1;
    long held = number(call.gpu, "event_reasons", idle);
    *into = (unsigned long long)(working ? (held & ~idle) | load.event_reasons : held);
    return OK;
}

static nvmlReturn_t known_reasons(nvmlDevice_t device, unsigned long long *into)
{
    GPU(device);
    *into = 0x1ff;
    return OK;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *r) { return reasons(d, r); }
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *r) { return reasons(d, r); }
nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t d, unsigned long long *r) { return known_reasons(d, r); }
nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t d, unsigned long long *r) { return known_reasons(d, r); }

/* ECC */

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    GPU(device);
    nvmlReturn_t result = give_number(call.gpu, "ecc", current);
    return result == OK ? give_number(call.gpu, "ecc_pending", pending) : result;
}

/* Errors of the memory: `counter` 0 since the driver was loaded or the GPU reset, 1 in the board's life. */
static unsigned long long ecc_errors(int gpu, int kind, int counter)
{
    static const char *const keys[2][2] = {{"ecc_corrected_volatile", "ecc_corrected"},
                                           {"ecc_uncorrected_volatile", "ecc_uncorrected"}};
    return counter == 0 || counter == 1 ? (unsigned long long)number(gpu, keys[kind != 0][counter], 0) : 0;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter, unsigned long long *count)
{
    GPU(device);
    if (!number(call.gpu, "ecc", 0))
        return NOT_SUPPORTED;
    *count = ecc_errors(call.gpu, kind, counter);
    return OK;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int kind, int counter, int location, unsigned long long *count)
{
    GPU(device);
    if (!number(call.gpu, "ecc", 0))
        return NOT_SUPPORTED;
    const int device_memory = 2;
    *count = location == device_memory ? ecc_errors(call.gpu, kind, counter) : 0;
    return OK;
}

struct sram_status {
    unsigned int version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected, buckets[5];
    unsigned int threshold_exceeded;
};

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, struct sram_status *into)
{
    GPU(device);
    if (!branch_at_least(550))
        return FUNCTION_NOT_FOUND;
    if (into->version != (sizeof *into | 1U << 24))
        return VERSION_MISMATCH;
    if (!number(call.gpu, "ecc", 0) || !has(call.gpu, "sram_threshold_exceeded"))
        return NOT_SUPPORTED;
    unsigned int version = into->version;
    memset(into, 0, sizeof *into);
    into->version = version;
    into->threshold_exceeded = (unsigned int)number(call.gpu, "sram_threshold_exceeded", 0);
    if (into->threshold_exceeded)
        into->aggregate_parity = 5; /* more than four in one bank exceed it */
    return OK;
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, int cause, unsigned int *count, unsigned long long *pages, unsigned long long *times)
{
    GPU(device);
    const int double_bit = 1;
    if (!has(call.gpu, "retired_pages_pending")) /* Ampere and newer remap rows instead */
        return NOT_SUPPORTED;
    unsigned int found = cause == double_bit ? (unsigned int)number(call.gpu, "retired_pages", 0) : 0;
    bool fits = found <= *count && (pages != NULL || found == 0);
    for (unsigned int i = 0; fits && i < found; i++) {
        pages[i] = 0x1000ULL * (i + 1);
        if (times != NULL)
            times[i] = 0;
    }
    *count = found;
    return fits ? OK : INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, int cause, unsigned int *count, unsigned long long *pages)
{
    return nvmlDeviceGetRetiredPages_v2(device, cause, count, pages, NULL);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed)
{
    GPU(device);
    if (!has(call.gpu, "remapped_rows"))
        return NOT_SUPPORTED;
    *corrected = 0;
    *uncorrected = (unsigned int)number(call.gpu, "remapped_rows", 0);
    *pending = (unsigned int)number(call.gpu, "remap_pending", 0);
    *failed = (unsigned int)number(call.gpu, "remap_failed", 0);
    return OK;
}

struct histogram { unsigned int max, high, partial, low, none; };

/* A remapped row is in a bank of its own, with nearly all of its spare rows left. */
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, struct histogram *into)
{
    GPU(device);
    if (!has(call.gpu, "banks"))
        return NOT_SUPPORTED;
    memset(into, 0, sizeof *into);
    into->none = (unsigned int)number(call.gpu, "banks_without_spares", 0);
    into->high = (unsigned int)number(call.gpu, "remapped_rows", 0);
    into->max = (unsigned int)number(call.gpu, "banks", 0) - into->none - into->high;
    return OK;
}
