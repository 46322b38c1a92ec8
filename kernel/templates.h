// The kernels over real numbers, once for float and once for double: path.h defines T and the rest before each.
#include "elementwise.h"
#include "reduce.h"
#include "gemm.h"
#include "moments.h"
#include "norm.h"
#include "norm_batch.h"
#include "softmax.h"
#include "attention.h"
#include "conv.h"
#include "conv_weight.h"
#include "conv_sparse.h"
#include "pooling.h"
#include "optim.h"
#include "optim_rules.h"
#include "activations.h"
#include "group_norm.h"
#include "rnn.h"
#include "scatter.h"

#undef T
#undef V
#undef I
#undef INT
#undef S
#undef N
