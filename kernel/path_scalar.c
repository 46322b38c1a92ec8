// The portable path: what any C compiler makes of the templates, for machines without the others.
#define PATH scalar
#define VB 16
#include "path.h"
