package dns

import (
	"errors"
	"fmt"
	"strings"
)

// maxResolvConf bounds a resolv.conf file, in bytes.
const maxResolvConf = 10 << 20

// Resolv is the part of a resolv.conf file that pods inherit.
type Resolv struct {
	Servers  []string
	Searches []string
	Options  []string
}

// ParseResolvConf reads the text of a resolv.conf file: name servers add up, of search lines the last one counts,
// and of options of one name the last one. The rest of the file is usable even when a line in it is an error.
//
// Source: resolv.conf(5).
func ParseResolvConf(text []byte) (*Resolv, error) {
	r := &Resolv{}
	if len(text) > maxResolvConf {
		return r, fmt.Errorf("resolv.conf has %d bytes, more than the %d that are read", len(text), maxResolvConf)
	}
	var errs []error
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch keyword, values := fields[0], fields[1:]; keyword {
		case "nameserver":
			if len(values) == 0 {
				errs = append(errs, fmt.Errorf("resolv.conf line %d: nameserver without an address", number))
				continue
			}
			r.Servers = append(r.Servers, values[0])
		case "search":
			r.Searches = searchList(values)
		case "options":
			for _, option := range values {
				r.Options = setOption(r.Options, option)
			}
		}
	}
	return r, errors.Join(errs...)
}

// searchList takes trailing dots away, so that one domain in two spellings counts once towards the limits.
func searchList(domains []string) []string {
	var out []string
	for _, d := range domains {
		if d != "." {
			out = append(out, strings.TrimSuffix(d, "."))
		}
	}
	return out
}
