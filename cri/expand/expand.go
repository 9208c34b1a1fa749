// Package expand replaces the references to environment variables in a pod's spec: in values of variables, commands,
// arguments and subPathExpr, and in the commands of probes.
package expand

import "strings"

// References replaces $(NAME) in text by lookup's value. "$$" stands for "$", so "$$(NAME)" gives the text
// "$(NAME)"; a reference whose name lookup doesn't know stays as it is. What was put in isn't expanded again.
//
// Source: Kubernetes API reference, EnvVar.value and Container.command.
func References(text string, lookup func(name string) (value string, ok bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String()
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				text = rest[1:]
				continue
			}
			if value, ok := lookup(name); ok {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}
