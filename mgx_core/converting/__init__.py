"""Infrastructure that frontends share: converter tables, an instruction builder and parse-time constant evaluation."""
