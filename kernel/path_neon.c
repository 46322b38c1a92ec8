#if defined __aarch64__
#include <arm_neon.h>
#define PATH neon
#define PATH_NEON
#define VB 16
#include "path.h"
#endif
