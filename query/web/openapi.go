package web

import (
	"encoding/json"
	"strconv"
	"strings"
)

// object is one of JSON's.
type object = map[string]any

// openAPI is the table of routes as an OpenAPI 3.1 document. Other fields than those it
// has may come besides.
func openAPI(version string) []byte {
	all := schemas{}
	problem := all.of(problem{})
	document := object{
		"openapi": "3.1.0",
		"info":    object{"title": "Tidemark", "version": version, "description": "Counters and unread numbers. Ids and positions are decimal strings."},
		"paths":   all.paths(problem),
		"components": object{
			"schemas":         all,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []any{object{}, object{"token": []any{}}},
	}
	out, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		panic(err) // of strings, numbers and maps alone
	}
	return append(out, '\n')
}

func (s schemas) paths(problem object) object {
	all := object{"/v1/events": object{"post": s.eventsOperation(problem)}}
	for i := range routes {
		r := &routes[i]
		all[r.pattern] = object{strings.ToLower(r.method): s.operation(r, problem)}
	}
	return all
}

func (s schemas) operation(r *route, problem object) object {
	var parameters []any
	for i := range r.path {
		parameters = append(parameters, r.path[i].describe("path"))
	}
	for _, p := range r.parameters() {
		parameters = append(parameters, p.describe("query"))
	}
	o := object{"operationId": r.endpoint, "summary": r.about, "responses": s.responses(r.answer, r.reply, r.tagged, problem)}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if r.body {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.of(readRequest{})}}}
	}
	return o
}

func (s schemas) eventsOperation(problem object) object {
	all := s.responses(taken{}, `{"stored":2,"position":"7341","refused":[{"line":3,"reason":"id","detail":"post is missing"}]}`, false, problem)
	all["422"] = object{"description": "no line is stored", "content": object{"application/json": object{"schema": s.of(taken{})}}}
	return object{
		"operationId": "events",
		"summary":     "Stores events, one JSON object a line.",
		"parameters": []any{object{
			"name": "Idempotency-Key", "in": "header", "schema": object{"type": "string", "maxLength": keyMax},
			"description": "the same body with the same key is stored once, within two minutes",
		}},
		"requestBody": object{"required": true, "content": object{"application/x-ndjson": object{"schema": object{"type": "string"}}}},
		"responses":   all,
	}
}

func (p *parameter) describe(in string) object {
	o := object{"name": p.name, "in": in, "description": p.about, "schema": p.kind.schema()}
	if in == "path" {
		o["required"] = true
	}
	if p.kind == list || p.kind == either {
		o["explode"] = false // between commas
		o["style"] = map[string]string{"path": "simple", "query": "form"}[in]
	}
	return o
}

func (k kind) schema() object {
	switch k {
	case number:
		return object{"type": "integer", "minimum": 1}
	case boolean:
		return object{"type": "boolean"}
	case list, either:
		return object{"type": "array", "items": object{"type": "string"}, "minItems": 1}
	}
	return object{"type": "string"}
}

// responses are an answer of a type, with an example, and the problems.
func (s schemas) responses(answer any, example string, tagged bool, problem object) object {
	all := object{"200": object{
		"description": "the answer",
		"content":     object{"application/json": object{"schema": s.of(answer), "example": json.RawMessage(example)}},
	}}
	if tagged {
		all["304"] = object{"description": "nothing has changed since the answer with the ETag of If-None-Match"}
	}
	for status, t := range titles {
		all[strconv.Itoa(status)] = object{"description": t.title, "content": object{"application/problem+json": object{"schema": problem}}}
	}
	return all
}
