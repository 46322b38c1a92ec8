package check

// A trait says what the check has to know about a builtin beyond its signature.
type trait struct {
	// collective: every rank has to call it.
	collective bool
	// own: the result is this rank's own. Otherwise what a collective returns is the same on all ranks, and what
	// another builtin returns differs if its arguments do.
	own bool
	// data: it differs because of what the rank received or saw (messages, time), rather than which rank it is.
	data bool
	why  string // shown instead of the call's source
	// equal: the result is the same on all ranks, whatever the arguments.
	equal bool
	// inPlace: afterwards the tensors of the first argument are the same too.
	inPlace bool
	// back: if gradients are recorded, the result's backward is a collective.
	back bool
	// with: it is a collective only if one of these arguments is given.
	with []string
}

// traits of the builtins that involve other ranks. A builtin that is not listed calls no collective. Those of dist
// are all listed, which a test checks.
var traits = map[string]trait{
	"dist.rank":           {own: true},
	"dist.local_rank":     {own: true},
	"dist.node_rank":      {own: true},
	"dist.is_main":        {own: true},
	"dist.world_size":     {equal: true},
	"dist.local_size":     {equal: true},
	"dist.num_nodes":      {equal: true},
	"dist.is_distributed": {equal: true},
	"dist.backend":        {equal: true},

	"dist.barrier":        {collective: true},
	"dist.all_reduce":     {collective: true, inPlace: true, back: true},
	"dist.broadcast":      {collective: true, inPlace: true, back: true},
	"dist.reduce":         {collective: true, own: true, data: true},
	"dist.reduce_scatter": {collective: true, own: true, data: true, back: true},
	"dist.all_gather":     {collective: true, back: true},
	"dist.gather":         {collective: true, own: true, data: true},
	"dist.scatter":        {collective: true, own: true, data: true},
	"dist.all_to_all":     {collective: true, own: true, data: true, back: true},

	"dist.send":     {equal: true},
	"dist.isend":    {equal: true},
	"dist.recv":     {own: true, data: true},
	"dist.irecv":    {own: true, data: true},
	"dist.recv_any": {own: true, data: true},

	"dist.broadcast_tensors":     {collective: true, inPlace: true},
	"dist.sync_grad":             {collective: true},
	"dist.sync_buffer":           {collective: true, inPlace: true},
	"dist.average_metrics":       {collective: true},
	"dist.reduce_dict":           {collective: true, own: true, data: true},
	"dist.shared_random_seed":    {collective: true},
	"dist.master_first":          {collective: true},
	"dist.local_master_first":    {collective: true},
	"dist.read_file":             {collective: true},
	"dist.ddp":                   {collective: true},
	"dist.unwrap":                {},
	"dist.fsdp":                  {collective: true},
	"dist.zero":                  {collective: true},
	"dist.new_group":             {collective: true},
	"dist.init_process_group":    {collective: true},
	"dist.destroy_process_group": {collective: true},
	"dist.new_subgroups":         {collective: true},
	"dist.local_group":           {},
	"dist.init_parallelism":      {collective: true},

	"dist.init_device_mesh":             {collective: true},
	"dist.new_subgroups_by_enumeration": {collective: true},
	"dist.split_group":                  {collective: true},
	"dist.get_process_group_ranks":      {own: true},
	"dist.get_group_rank":               {own: true},
	"dist.get_global_rank":              {own: true},
	"dist.all_gather_into_tensor":       {collective: true, inPlace: true},
	"dist.reduce_scatter_tensor":        {collective: true},
	"dist.all_to_all_single":            {collective: true},
	"dist.premul_sum":                   {},
	"dist.coalescing":                   {collective: true},
	"dist.all_reduce_coalesced":         {collective: true, inPlace: true},
	"dist.join":                         {collective: true},
	"dist.join_hook":                    {},
	"dist.P2POp":                        {},
	"dist.batch_isend_irecv":            {own: true, data: true},
	"dist.store.queue_pop":              {own: true, data: true},

	"dist.copy_to_group":      {back: true},
	"dist.reduce_from_group":  {collective: true},
	"dist.column_linear":      {collective: true},
	"dist.row_linear":         {collective: true},
	"dist.vocab_embedding":    {collective: true},
	"dist.parallelize_module": {collective: true},
	"dist.shard":              {},
	"dist.pipeline":           {collective: true},
	"dist.data_parallel":      {},
	"dist.ring_attention":     {collective: true, own: true, data: true, back: true},
	"dist.sync_batch_norm":    {collective: true},
	"dist.rpc":                {own: true, data: true},
	"dist.rpc_async":          {own: true, data: true},
	"dist.remote":             {own: true, data: true},
	"dist.serve":              {collective: true},
	"dist.store":              {},
	"dist.store.add":          {own: true, data: true},

	"checkpoint.save":      {collective: true},
	"checkpoint.restore":   {collective: true},
	"run.should_stop":      {collective: true},
	"run.params":           {equal: true},
	"run.elapsed":          {own: true, data: true, why: "run.elapsed(), each rank's own clock"},
	"optim.clip_grad_norm": {with: []string{"sharded", "group"}},
}
