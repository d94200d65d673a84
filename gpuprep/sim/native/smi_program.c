/* Stands in for nvidia-smi where the packages are stubs: `--query-gpu=driver_version,name --format=csv,noheader`, and a line
 * a GPU otherwise. It asks NVML, as the real program does. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *device;

int main(int argc, char **argv)
{
    const char *wanted = "name";
    char version[96] = "", name[96] = "";
    unsigned int count = 0;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--query-gpu=", 12) == 0) {
            wanted = argv[i] + 12;
        } else if (strcmp(argv[i], "-r") == 0 || strcmp(argv[i], "--gpu-reset") == 0) {
            puts("This stand-in resets no GPU");
            return 3;
        }
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (nvml == NULL) {
        puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system (stand-in)");
        return 12;
    }
    int (*start)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*driver)(char *, unsigned int) = (int (*)(char *, unsigned int))dlsym(nvml, "nvmlSystemGetDriverVersion");
    int (*number)(unsigned int *) = (int (*)(unsigned int *))dlsym(nvml, "nvmlDeviceGetCount_v2");
    int (*get)(unsigned int, device *) = (int (*)(unsigned int, device *))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*title)(device, char *, unsigned int) = (int (*)(device, char *, unsigned int))dlsym(nvml, "nvmlDeviceGetName");
    int result = start && driver && number && get && title ? start() : 999;
    if (result == 0)
        result = driver(version, sizeof version);
    if (result == 0)
        result = number(&count);
    if (result != 0) {
        printf("NVIDIA-SMI has failed: NVML error %d (stand-in)\n", result);
        return result == 18 ? 18 : 9;
    }
    for (unsigned int i = 0; i < count; i++) {
        device handle;
        if (get(i, &handle) != 0 || title(handle, name, sizeof name) != 0)
            strcpy(name, "[Unknown Error]");
        puts(strcmp(wanted, "driver_version") == 0 ? version : name);
    }
    return 0;
}
