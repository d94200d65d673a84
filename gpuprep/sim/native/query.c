/* The NVML functions that read. Names, argument order and structure layouts are those of nvml.h. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READS_NUMBER(function, key) \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *value) { GPU(device); return give_number(call.gpu, key, value); }
#define READS_TEXT(function, key) \
    nvmlReturn_t function(nvmlDevice_t device, char *value, unsigned int size) { GPU(device); return give_text(call.gpu, key, value, size); }

READS_NUMBER(nvmlDeviceGetIndex, "index")
READS_NUMBER(nvmlDeviceGetMinorNumber, "index")
READS_NUMBER(nvmlDeviceGetBoardId, "board_id")
READS_NUMBER(nvmlDeviceGetBrand, "brand")
READS_NUMBER(nvmlDeviceGetArchitecture, "architecture")
READS_NUMBER(nvmlDeviceGetNumGpuCores, "cores")
READS_NUMBER(nvmlDeviceGetMemoryBusWidth, "memory_bus_width")
READS_NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
READS_NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
READS_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation")
READS_NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation")
READS_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width")
READS_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width_now")
READS_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")
READS_NUMBER(nvmlDeviceGetDefaultEccMode, "ecc_default")
READS_NUMBER(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board")
READS_NUMBER(nvmlDeviceGetDisplayMode, "display_mode")
READS_NUMBER(nvmlDeviceGetDisplayActive, "display_active")
READS_NUMBER(nvmlDeviceGetPowerManagementMode, "power_management")
READS_NUMBER(nvmlDeviceGetAccountingMode, "accounting")
READS_NUMBER(nvmlDeviceGetAccountingBufferSize, "accounting_buffer")
READS_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")
READS_NUMBER(nvmlDeviceGetIrqNum, "irq")
READS_NUMBER(nvmlDeviceGetVirtualizationMode, "virtualization")
READS_TEXT(nvmlDeviceGetSerial, "serial")
READS_TEXT(nvmlDeviceGetVbiosVersion, "vbios")
READS_TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
READS_TEXT(nvmlDeviceGetInforomImageVersion, "inforom")

/* What differs under load */

static nvmlReturn_t performance_state(nvmlDevice_t device, unsigned int *state)
{
    GPU(device);
    int working;
    load_of(call.gpu, &working);
    nvmlReturn_t result = give_number(call.gpu, "performance_state", state);
    if (working)
        *state = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t d, unsigned int *s) { return performance_state(d, s); }
nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t d, unsigned int *s) { return performance_state(d, s); }

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    GPU(device);
    int working;
    load_of(call.gpu, &working);
    if (!working)
        return give_number(call.gpu, "pcie_generation_now", generation);
    return give_number(call.gpu, has(call.gpu, "fault_pcie_generation") ? "fault_pcie_generation" : "pcie_generation", generation);
}

/* System */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    SYSTEM();
    return give_text(-1, "driver", version, size);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
    SYSTEM();
    char written[96];
    snprintf(written, sizeof written, "%ld.%s", number(-1, "cuda", 0) / 1000, text(-1, "driver"));
    return copy_text(written, version, size);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    SYSTEM();
    return give_number(-1, "cuda", (unsigned int *)version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    SYSTEM();
    *count = 0;
    return OK;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) { return nvmlUnitGetCount(count); }

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request", "RM has detected an NVML/RM version mismatch.",
        "In use by another client", "Insufficient Memory", "No data", "VGPU ECC not supported",
        "Insufficient resources", "Frequency not supported", "Argument version mismatch", "Deprecated", "Not ready",
        "GPU not found", "Invalid state",
    };
    return result >= 0 && result < (int)(sizeof words / sizeof *words) ? words[result] : "Unknown Error";
}

/* Which devices */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    SYSTEM();
    if (count == NULL)
        return INVALID_ARGUMENT;
    *count = (unsigned int)gpu_count();
    return OK;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    SYSTEM();
    if (device == NULL || index >= (unsigned int)gpu_count())
        return INVALID_ARGUMENT;
    if (number((int)index, "fault_gpu_lost", 0))
        return GPU_IS_LOST;
    *device = handle_of((int)index);
    return OK;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t by_text(const char *key, const char *wanted, nvmlDevice_t *device)
{
    SYSTEM();
    if (wanted == NULL || device == NULL)
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        if (strcasecmp(text(gpu, key), wanted) == 0) {
            *device = handle_of(gpu);
            return number(gpu, "fault_gpu_lost", 0) ? GPU_IS_LOST : OK;
        }
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) { return by_text("uuid", uuid, device); }
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) { return by_text("serial", serial, device); }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus, slot, function = 0;
    char wanted[32];
    if (bus_id == NULL)
        return INVALID_ARGUMENT;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2)
            return INVALID_ARGUMENT;
    }
    snprintf(wanted, sizeof wanted, "%08X:%02X:%02X.%X", domain, bus & 0xff, slot & 0xff, function & 0xf);
    return by_text("bus_id", wanted, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* PCI */

struct pci_v1 { char bus_id[16]; unsigned int domain, bus, device, id; };
struct pci_v2 { struct pci_v1 first; unsigned int subsystem, reserved[4]; };
struct pci_v3 { struct pci_v1 first; unsigned int subsystem; char bus_id[32]; };
struct pci_ext { unsigned int version, domain, bus, device, id, subsystem, base_class, sub_class; char bus_id[32]; };

static void fill_pci(int gpu, struct pci_v1 *pci)
{
    /* The legacy id has a domain of four digits, the new one of eight. */
    snprintf(pci->bus_id, sizeof pci->bus_id, "%.12s", text(gpu, "bus_id") + 4);
    pci->domain = 0;
    pci->bus = (unsigned int)number(gpu, "bus", 0);
    pci->device = (unsigned int)number(gpu, "slot", 0);
    pci->id = (unsigned int)number(gpu, "pci_id", 0);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, struct pci_v1 *pci)
{
    GPU(device);
    fill_pci(call.gpu, pci);
    return OK;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, struct pci_v2 *pci)
{
    GPU(device);
    memset(pci, 0, sizeof *pci);
    fill_pci(call.gpu, &pci->first);
    pci->subsystem = (unsigned int)number(call.gpu, "pci_subsystem", 0);
    return OK;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_v3 *pci)
{
    GPU(device);
    memset(pci, 0, sizeof *pci);
    fill_pci(call.gpu, &pci->first);
    pci->subsystem = (unsigned int)number(call.gpu, "pci_subsystem", 0);
    return copy_text(text(call.gpu, "bus_id"), pci->bus_id, sizeof pci->bus_id);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, struct pci_ext *pci)
{
    GPU(device);
    struct pci_v1 first;
    fill_pci(call.gpu, &first);
    pci->domain = first.domain;
    pci->bus = first.bus;
    pci->device = first.device;
    pci->id = first.id;
    pci->subsystem = (unsigned int)number(call.gpu, "pci_subsystem", 0);
    pci->base_class = 0x03;
    pci->sub_class = 0x02;
    return copy_text(text(call.gpu, "bus_id"), pci->bus_id, sizeof pci->bus_id);
}

/* Memory */

static long used_mib(int gpu)
{
    int working;
    return number(gpu, "memory_used_mib", 0) + load_of(gpu, &working).memory_mib;
}

struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned int version; unsigned long long total, reserved, free, used; };

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory_v1 *memory)
{
    GPU(device);
    const unsigned long long mib = 1024 * 1024;
    memory->total = (unsigned long long)number(call.gpu, "memory_mib", 0) * mib;
    /* Without reserved memory of its own field, version 1 counts it as used. */
    memory->used = (unsigned long long)(number(call.gpu, "memory_reserved_mib", 0) + used_mib(call.gpu)) * mib;
    memory->free = memory->total - memory->used;
    return OK;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory)
{
    GPU(device);
    const unsigned long long mib = 1024 * 1024;
    if (memory->version != (sizeof *memory | 2U << 24))
        return VERSION_MISMATCH;
    memory->total = (unsigned long long)number(call.gpu, "memory_mib", 0) * mib;
    memory->reserved = (unsigned long long)number(call.gpu, "memory_reserved_mib", 0) * mib;
    memory->used = (unsigned long long)used_mib(call.gpu) * mib;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct memory_v1 *memory)
{
    GPU(device);
    memory->total = (unsigned long long)number(call.gpu, "bar1_mib", 256) * 1024 * 1024;
    memory->used = 2 * 1024 * 1024;
    memory->free = memory->total - memory->used; /* the order of the fields is total, free, used, as above */
    return OK;
}
