package credentialprovider

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What a provider says its answer is good for, and the key of an answer for all images: no name of an image has
// brackets.
const (
	cacheImage    = "Image"
	cacheRegistry = "Registry"
	cacheGlobal   = "Global"
	globalKey     = "<global>"
)

// purgeEvery is how often answers that hold no longer are dropped, the kubelet's.
const purgeEvery = 15 * time.Minute

// cache has the answers of one provider.
type cache struct {
	mu      sync.Mutex
	answers map[string]answer
	purged  time.Time
}

// answer are credentials by the pattern of the images that they are for.
type answer struct {
	logins map[string]login
	end    time.Time
}

// find gives an answer that holds still, the closest to the image first.
func (c *cache) find(image, owner string) (map[string]login, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.purged) > purgeEvery {
		maps.DeleteFunc(c.answers, func(_ string, a answer) bool { return now.After(a.end) })
		c.purged = now
	}
	for _, base := range []string{image, registryOf(image), globalKey} {
		if a, there := c.answers[key(base, owner)]; there && !now.After(a.end) {
			return a.logins, true
		}
	}
	return nil, false
}

func (c *cache) keep(base, owner string, logins map[string]login, hold time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[string]answer{}
	}
	c.answers[key(base, owner)] = answer{logins, time.Now().Add(hold)}
}

func registryOf(image string) string {
	registry, _, _ := strings.Cut(image, "/")
	return registry
}

// key joins parts so that different parts never give the same key.
func key(parts ...string) string {
	var b []byte
	for _, part := range parts {
		b = strconv.AppendQuote(b, part)
	}
	return string(b)
}

func annotationsKey(annotations map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		parts = append(parts, name, annotations[name])
	}
	return key(parts...)
}
