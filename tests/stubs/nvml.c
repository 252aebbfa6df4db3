/* A stub libnvidia-ml.so.1: healthy GPUs of the H100 kind, one unless STUB_VALUES says otherwise, and every fault of stub.h.
 * What is left out here is, to nvidia-ml-py, a function that the driver is too old for.
 */
#include "stub.h"

enum { NOT_SUPPORTED = 3, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, MOST = 16 };

#define GIB (1ULL << 30)

/* Which driver and GPU it is; another one with -D. */
#ifndef DRIVER
#define DRIVER "999.88.77"
#define NAME "NVIDIA H100 80GB HBM3"
#define PCI_ID 0x233010DE
#define COMPUTE_MAJOR 9
#endif

/* A GPU, or one of its MIG devices: then mig counts from 1. */
typedef struct device {
    int index, mig;
} *Device;

static struct device gpus[MOST], migs[MOST][2];

static int text(char *buffer, unsigned size, const char *value)
{
    snprintf(buffer, size, "%s", value);
    return 0;
}

/* The library and the system. */

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    FATE(0);
    for (int i = 0; i < MOST; i++) {
        gpus[i] = (struct device){i, 0};
        for (int j = 0; j < 2; j++)
            migs[i][j] = (struct device){i, j + 1};
    }
    return 0;
}

int nvmlShutdown(void)
{
    FATE(0);
    return 0;
}

#define SYSTEM_TEXT(function, value)          \
    int function(char *buffer, unsigned size) \
    {                                         \
        FATE(0);                              \
        return text(buffer, size, value);     \
    }

#define SYSTEM_NUMBER(function, otherwise) \
    int function(unsigned *value)          \
    {                                      \
        FATE(0);                           \
        *value = VALUE(0, otherwise);      \
        return 0;                          \
    }

SYSTEM_TEXT(nvmlSystemGetDriverVersion, DRIVER)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "13." DRIVER)
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion, 13000)
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion_v2, 13000)
SYSTEM_NUMBER(nvmlDeviceGetCount_v2, 1)

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *gpu)
{
    FATE(index);
    if (index >= MOST)
        return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return 0;
}

/* Getters that give one number, two equal ones, or a text. */

#define NUMBER(function, type, otherwise)      \
    int function(Device gpu, type *value)      \
    {                                          \
        FATE(gpu->index);                      \
        *value = VALUE(gpu->index, otherwise); \
        return 0;                              \
    }

#define PAIR(function, otherwise)                               \
    int function(Device gpu, unsigned *first, unsigned *second) \
    {                                                           \
        FATE(gpu->index);                                       \
        *first = *second = VALUE(gpu->index, otherwise);        \
        return 0;                                               \
    }

#define SELECTED(function, otherwise)                         \
    int function(Device gpu, unsigned which, unsigned *value) \
    {                                                         \
        (void)which;                                          \
        FATE(gpu->index);                                     \
        *value = VALUE(gpu->index, otherwise);                \
        return 0;                                             \
    }

#define TEXT(function, value)                             \
    int function(Device gpu, char *buffer, unsigned size) \
    {                                                     \
        FATE(gpu->index);                                 \
        return text(buffer, size, value);                 \
    }

NUMBER(nvmlDeviceGetBrand, unsigned, 14)
NUMBER(nvmlDeviceGetArchitecture, unsigned, 9)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, gpu->index)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 5)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 0)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, 0)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, 123524)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned long long, 0)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, 0)
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned, gpu->mig)
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned, 0)
PAIR(nvmlDeviceGetMigMode, 0)
PAIR(nvmlDeviceGetEccMode, 1)
SELECTED(nvmlDeviceGetTemperature, 37)
SELECTED(nvmlDeviceGetTemperatureThreshold, 95)
SELECTED(nvmlDeviceGetClockInfo, 1980)
SELECTED(nvmlDeviceGetMaxClockInfo, 1980)
TEXT(nvmlDeviceGetName, gpu->mig ? NAME " MIG 3g.40gb" : NAME)
TEXT(nvmlDeviceGetVbiosVersion, "96.00.DA.00.0C")

int nvmlDeviceGetUUID(Device gpu, char *buffer, unsigned size)
{
    FATE(gpu->index);
    snprintf(buffer, size, "%s-%08x-0000-4000-8000-%012x", gpu->mig ? "MIG" : "GPU", gpu->index, gpu->mig);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(Device gpu, int *major, int *minor)
{
    FATE(gpu->index);
    *major = COMPUTE_MAJOR;
    *minor = 0;
    return 0;
}

/* STUB_VALUES: of both kinds; of UncorrectedEcc: of the uncorrectable ones, where it is another number. */
int nvmlDeviceGetTotalEccErrors(Device gpu, unsigned type, unsigned counter, unsigned long long *count)
{
    (void)counter;
    FATE(gpu->index);
    *count = VALUE(gpu->index, 0);
    if (type)
        *count = number_for("STUB_VALUES", "UncorrectedEcc", gpu->index, *count);
    return 0;
}

/* STUB_VALUES: the rows of uncorrectable errors; of RemapPending: whether a remapping waits for a reset. */
int nvmlDeviceGetRemappedRows(Device gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure)
{
    FATE(gpu->index);
    *corrected = *failure = 0;
    *pending = number_for("STUB_VALUES", "RemapPending", gpu->index, 0);
    *uncorrected = VALUE(gpu->index, 0);
    return 0;
}

/* Getters that fill a structure. */

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(Device gpu, struct pci *pci)
{
    FATE(gpu->index);
    *pci = (struct pci){.device = 6 + gpu->index, .id = PCI_ID, .subsystem = 0x16C110DE};
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:00:%02X.0", 6 + gpu->index);
    return 0;
}

/* STUB_VALUES: the mebibytes that are free. */
int nvmlDeviceGetMemoryInfo(Device gpu, unsigned long long memory[3])
{
    FATE(gpu->index);
    memory[0] = 80 * GIB;
    memory[1] = (unsigned long long)VALUE(gpu->index, 80 * 1024) << 20;
    memory[2] = memory[0] - memory[1];
    return 0;
}

int nvmlDeviceGetUtilizationRates(Device gpu, unsigned percent[2])
{
    FATE(gpu->index);
    percent[0] = percent[1] = VALUE(gpu->index, 0);
    return 0;
}

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

/* STUB_VALUES: the number of a process that holds 40 GiB. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device gpu, unsigned *count, struct process *processes)
{
    FATE(gpu->index);
    unsigned pid = VALUE(gpu->index, 0), room = *count;

    *count = pid ? 1 : 0;
    if (room < *count)
        return INSUFFICIENT_SIZE;
    if (pid)
        processes[0] = (struct process){pid, 40 * GIB, ~0u, ~0u};
    return 0;
}

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique, state, health;
    unsigned char summary;
};

/* STUB_VALUES: the state; of FabricHealth: the health mask. */
int nvmlDeviceGetGpuFabricInfoV(Device gpu, struct fabric *fabric)
{
    FATE(gpu->index);
    fabric->status = fabric->clique = 0;
    fabric->health = number_for("STUB_VALUES", "FabricHealth", gpu->index, 0);
    fabric->state = VALUE(gpu->index, 0);
    return 0;
}

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, code;
    union {
        int number;
        unsigned long long all;
    } value;
};

enum { MEMORY_TEMPERATURE = 82, SHUTDOWN_LIMIT = 193, RECOVERY_ACTION = 230, LINK_CRC = 163, SIGNED = 5 };

int nvmlDeviceGetFieldValues(Device gpu, int count, struct field *fields)
{
    FATE(gpu->index);
    for (struct field *field = fields; field < fields + count; field++) {
        field->type = SIGNED;
        field->code = 0;
        switch (field->id) {
        case MEMORY_TEMPERATURE: field->value.number = 41; break;
        case SHUTDOWN_LIMIT: field->value.number = -8; break;
        case RECOVERY_ACTION: field->value.number = VALUE(gpu->index, 0); break;
        case LINK_CRC: field->value.number = VALUE(gpu->index, 0); break;
        default: field->code = NOT_SUPPORTED;
        }
    }
    return 0;
}

/* NVLink; STUB_VALUES of nvmlDeviceGetNvLinkState: how many links there are. */

static long links(Device gpu)
{
    return number_for("STUB_VALUES", "nvmlDeviceGetNvLinkState", gpu->index, 0);
}

int nvmlDeviceGetNvLinkState(Device gpu, unsigned link, unsigned *active)
{
    FATE(gpu->index);
    *active = 1;
    return !links(gpu) ? NOT_SUPPORTED : link < links(gpu) ? 0 : INVALID_ARGUMENT;
}

#define OF_LINK(function, answer)                            \
    int function(Device gpu, unsigned link, unsigned *value) \
    {                                                        \
        FATE(gpu->index);                                    \
        *value = answer;                                     \
        return link < links(gpu) ? 0 : INVALID_ARGUMENT;     \
    }

OF_LINK(nvmlDeviceGetNvLinkVersion, 6)
OF_LINK(nvmlDeviceGetNvLinkRemoteDeviceType, 2)

/* MIG and pairs of GPUs. */

int nvmlDeviceGetMigDeviceHandleByIndex(Device gpu, unsigned index, Device *mig)
{
    FATE(gpu->index);
    if (index >= 2)
        return NOT_FOUND;
    *mig = &migs[gpu->index][index];
    return 0;
}

int nvmlDeviceGetP2PStatus(Device one, Device other, unsigned what, unsigned *status)
{
    (void)other, (void)what;
    FATE(one->index);
    *status = VALUE(one->index, 0);
    return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned *level)
{
    (void)other;
    FATE(one->index);
    *level = VALUE(one->index, 30);
    return 0;
}

/* GPU performance monitoring. A sample knows its GPU only; STUB_VALUES: of gpmN the metric number N, of each GPU. */

struct support {
    unsigned version, is_supported;
};

int nvmlGpmQueryDeviceSupport(Device gpu, struct support *support)
{
    FATE(gpu->index);
    support->is_supported = VALUE(gpu->index, 1);
    return 0;
}

int nvmlGpmSampleAlloc(Device **sample)
{
    FATE(0);
    *sample = malloc(sizeof **sample);
    return 0;
}

int nvmlGpmSampleGet(Device gpu, Device *sample)
{
    FATE(gpu->index);
    *sample = gpu;
    return 0;
}

struct metrics {
    unsigned version, number;
    Device *first, *second;
    struct {
        unsigned id, code;
        double value;
        const char *names[3];
    } metrics[];
};

int nvmlGpmMetricsGet(struct metrics *asked)
{
    FATE((*asked->second)->index);
    for (unsigned i = 0; i < asked->number; i++) {
        char name[16];

        snprintf(name, sizeof name, "gpm%u", asked->metrics[i].id);
        asked->metrics[i].code = 0;
        asked->metrics[i].value = number_for("STUB_VALUES", name, (*asked->second)->index, 0);
    }
    return 0;
}

struct utilization {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
};

/* STUB_VALUES: the percentage of the multiprocessors' time that the process of ComputeRunningProcesses used. */
int nvmlDeviceGetProcessUtilization(Device gpu, struct utilization *samples, unsigned *count, unsigned long long since)
{
    FATE(gpu->index);
    unsigned pid = number_for("STUB_VALUES", "nvmlDeviceGetComputeRunningProcesses_v3", gpu->index, 0);

    if (!pid)
        return NOT_FOUND;
    if (!samples) {
        *count = 1;
        return INSUFFICIENT_SIZE;
    }
    *samples = (struct utilization){pid, since + 1, VALUE(gpu->index, 0), 0, 0, 0};
    return 0;
}
