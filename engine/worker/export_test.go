package worker

// Disturb is for tests of faulty processors.
var Disturb = &disturb
