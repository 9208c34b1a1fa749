package numa

// Hint is a set of NUMA nodes that a request can be served from.
type Hint struct {
	// Nodes is the set; empty if any nodes will do.
	Nodes Mask
	// Preferred hints have no more nodes than the request needs.
	Preferred bool
}

// ProviderHints are the hints of one provider by resource. A provider without any, and a resource with nil, has no
// preference. A resource whose list is empty can't be served from any set of nodes.
type ProviderHints map[string][]Hint

// AffinityError refuses a pod that the policy doesn't admit.
type AffinityError struct{}

// Error is the message of the pod's status.
func (AffinityError) Error() string { return "Resources cannot be allocated with Topology locality" }

// Reason is the reason of the pod's status.
func (AffinityError) Reason() string { return "TopologyAffinityError" }

// lists has an entry for each resource of each provider.
func lists(providers []ProviderHints) [][]Hint {
	var all [][]Hint
	for _, hints := range providers {
		if len(hints) == 0 {
			all = append(all, []Hint{{Preferred: true}})
		}
		for _, list := range hints {
			switch {
			case list == nil:
				list = []Hint{{Preferred: true}}
			case len(list) == 0:
				list = []Hint{{}}
			}
			all = append(all, list)
		}
	}
	return all
}

// single keeps the preferred hints of one node, and those of any.
func single(lists [][]Hint) [][]Hint {
	kept := make([][]Hint, len(lists))
	for i, list := range lists {
		for _, h := range list {
			if h.Preferred && h.Nodes.Count() <= 1 {
				kept[i] = append(kept[i], h)
			}
		}
	}
	return kept
}

// widest is the largest number of nodes that a resource needs at least.
func widest(lists [][]Hint) int {
	most := 0
	for _, list := range lists {
		least := 0
		for _, h := range list {
			if n := h.Nodes.Count(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		most = max(most, least)
	}
	return most
}
