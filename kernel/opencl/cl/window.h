// The geometry of a convolution or a pooling, in the order of Window in conv.go of package kernel.
struct window {
    long batch, channels, height, width, filters, kh, kw, sh, sw, ph, pw, oh, ow, dh, dw, xs, ys;
};
