package server

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// compressors are kept, because each has most of a megabyte of tables.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compressed answers with gzip those who take it, as scrapers do: text of metrics shrinks to a tenth.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !takesGzip(r.Header.Values("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		// Nobody further in should compress, too.
		r = r.Clone(r.Context())
		r.Header.Del("Accept-Encoding")
		z := compressors.Get().(*gzip.Writer)
		z.Reset(w)
		out := &compressor{ResponseWriter: w, z: z}
		next.ServeHTTP(out, r)
		if out.begun {
			// A client that went away is nobody to tell.
			_ = z.Close()
		}
		z.Reset(nil)
		compressors.Put(z)
	})
}

// takesGzip reads Accept-Encoding.
func takesGzip(headers []string) bool {
	for _, header := range headers {
		for item := range strings.SplitSeq(header, ",") {
			name, quality, _ := strings.Cut(item, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			weight, weighed := strings.CutPrefix(strings.TrimSpace(quality), "q=")
			if q, err := strconv.ParseFloat(weight, 64); !weighed || err == nil && q > 0 {
				return true
			}
		}
	}
	return false
}

// compressor compresses an answer.
type compressor struct {
	http.ResponseWriter
	z     *gzip.Writer
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (c *compressor) WriteHeader(code int) {
	if !c.begun {
		c.begun = true
		c.Header().Del("Content-Length")
		c.Header().Set("Content-Encoding", "gzip")
		c.Header().Add("Vary", "Accept-Encoding")
	}
	c.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (c *compressor) Write(p []byte) (int, error) {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	return c.z.Write(p)
}
