! Tandem in Fortran 2008: models that a program trains and asks. docs/simulation.md is the guide.
!
!   call tandem_train(model, tandem_array(x), tandem_array(y), loss)
!   call tandem_predict(model, tandem_array(x), y)
!
! tandem_array() describes an array where it is, also a section with strides, with its dimensions reversed: x(nx, ny, c, nb)
! is [nb, c, ny, nx], so that the LAST dimension is the batch. Nothing is transposed or kept. Arrays that are written are
! arguments themselves, or described ones with the attribute TARGET.
!
! Without the argument `status` an error ends the program with the library's message (error stop 1). With it the program
! goes on: 0 is success, tandem_message() the message. Objects are freed by tandem_free(), which may be called twice.
module tandem
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real32, real64, int64, error_unit
  use tandem_arrays
  implicit none
  private
  public :: tandem_array, tandem_array_t, tandem_group_t, tandem_model_t, tandem_window_t, tandem_trainer_t, tandem_report_t
  public :: tandem_group, tandem_group_rank, tandem_model, tandem_load, tandem_save, tandem_free
  public :: tandem_observe, tandem_train, tandem_evaluate, tandem_predict, tandem_backward
  public :: tandem_train_multi, tandem_evaluate_multi, tandem_predict_multi
  public :: tandem_get, tandem_set, tandem_read, tandem_write
  public :: tandem_window, tandem_push, tandem_count, tandem_train_window
  public :: tandem_trainer_start, tandem_trainer_update, tandem_trainer_stop
  public :: tandem_checkpoint_write, tandem_checkpoint_read, tandem_state_size, tandem_state_get, tandem_state_set
  public :: tandem_message, tandem_status_name, tandem_version, tandem_seed, tandem_threads, tandem_replica_invariant_parts

  integer, parameter, public :: tandem_ok = 0, tandem_invalid_argument = 1, tandem_not_found = 2, &
    tandem_already_exists = 3, tandem_resource_exhausted = 4, tandem_failed_precondition = 5, tandem_out_of_range = 6, &
    tandem_deadline_exceeded = 7, tandem_unavailable = 8, tandem_aborted = 9, tandem_data_loss = 10, &
    tandem_unimplemented = 11, tandem_runtime = 12, tandem_internal = 13

  type :: tandem_group_t
    private
    type(c_ptr) :: p = c_null_ptr
  end type
  type :: tandem_model_t
    private
    type(c_ptr) :: p = c_null_ptr
  end type

  type :: tandem_window_t
    private
    type(c_ptr) :: p = c_null_ptr
  end type
  type :: tandem_trainer_t
    private
    type(c_ptr) :: p = c_null_ptr
  end type
  type, bind(c) :: tandem_report_t
    integer(c_size_t) :: size = 48
    integer(c_int64_t) :: steps = 0, step = 0
    real(c_double) :: loss = 0, holdout_loss = 0, seconds = 0
  end type
  type, bind(c) :: window_options_t
    integer(c_size_t) :: size = 56
    integer(c_int64_t) :: capacity = 65536, batch = 32, min_samples = 0
    integer(c_int32_t) :: replace = 0, reserved = 0
    real(c_double) :: holdout = 0
    integer(c_int64_t) :: seed = 0
  end type
  type, bind(c) :: budget_t
    integer(c_size_t) :: size = 24
    integer(c_int64_t) :: max_steps = 1
    real(c_double) :: max_seconds = 0
  end type
  type, bind(c) :: trainer_options_t
    integer(c_size_t) :: size = 32
    integer(c_int64_t) :: max_lag = 8
    real(c_double) :: steps_per_push = 1
    integer(c_int32_t) :: threads = 1, reserved = 0
  end type

  interface tandem_predict
    module procedure predict_array, &
      predict_real32_1, predict_real32_2, predict_real32_3, predict_real32_4, predict_real32_5, &
      predict_real64_1, predict_real64_2, predict_real64_3, predict_real64_4, predict_real64_5
  end interface
  interface tandem_free
    module procedure free_group, free_model, free_window
  end interface

  interface
    integer(c_int32_t) function tandem_group_from_fortran(comm, p) bind(c)
      import; integer(c_int), value :: comm; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_group_rank(p, rank, ranks) bind(c, name="tandem_group_rank")
      import; type(c_ptr), value :: p; integer(c_int32_t), intent(out) :: rank, ranks
    end function
    integer(c_int32_t) function c_group_free(p) bind(c, name="tandem_group_free")
      import; type(c_ptr), value :: p
    end function
    integer(c_int32_t) function c_model_create(definition, group, p) bind(c, name="tandem_model_create")
      import; character(kind=c_char), intent(in) :: definition(*); type(c_ptr), value :: group; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_model_load(path, group, p) bind(c, name="tandem_model_load")
      import; character(kind=c_char), intent(in) :: path(*); type(c_ptr), value :: group; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_model_save(p, path) bind(c, name="tandem_model_save")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int32_t) function c_model_free(p) bind(c, name="tandem_model_free")
      import; type(c_ptr), value :: p
    end function
    integer(c_int32_t) function c_model_get(p, name, number) bind(c, name="tandem_model_get")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: name(*); real(c_double), intent(out) :: number
    end function
    integer(c_int32_t) function c_model_set(p, name, number) bind(c, name="tandem_model_set")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: name(*); real(c_double), value :: number
    end function
    integer(c_int32_t) function c_model_read(p, weight, to) bind(c, name="tandem_model_read")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: weight(*); type(tandem_array_t), intent(in) :: to
    end function
    integer(c_int32_t) function c_model_write(p, weight, from) bind(c, name="tandem_model_write")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: weight(*); type(tandem_array_t), intent(in) :: from
    end function
    integer(c_int32_t) function c_model_observe(p, x, y) bind(c, name="tandem_model_observe")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y
    end function
    integer(c_int32_t) function c_train(p, x, y, weight, loss) bind(c, name="tandem_train")
      import; type(c_ptr), value :: p, weight; type(tandem_array_t), intent(in) :: x, y; real(c_double), intent(out) :: loss
    end function
    integer(c_int32_t) function c_evaluate(p, x, y, loss) bind(c, name="tandem_evaluate")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y; real(c_double), intent(out) :: loss
    end function
    integer(c_int32_t) function c_predict(p, x, y) bind(c, name="tandem_predict")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y
    end function
    integer(c_int32_t) function c_train_multi(p, inputs, x, outputs, y, weight, loss) bind(c, name="tandem_train_multi")
      import; type(c_ptr), value :: p, weight; integer(c_int32_t), value :: inputs, outputs
      type(tandem_array_t), intent(in) :: x(*), y(*); real(c_double), intent(out) :: loss
    end function
    integer(c_int32_t) function c_evaluate_multi(p, inputs, x, outputs, y, loss) bind(c, name="tandem_evaluate_multi")
      import; type(c_ptr), value :: p; integer(c_int32_t), value :: inputs, outputs
      type(tandem_array_t), intent(in) :: x(*), y(*); real(c_double), intent(out) :: loss
    end function
    integer(c_int32_t) function c_predict_multi(p, inputs, x, outputs, y) bind(c, name="tandem_predict_multi")
      import; type(c_ptr), value :: p; integer(c_int32_t), value :: inputs, outputs
      type(tandem_array_t), intent(in) :: x(*), y(*)
    end function
    integer(c_int32_t) function c_backward(p, x, dy, train, dx) bind(c, name="tandem_backward")
      import; type(c_ptr), value :: p, dx; type(tandem_array_t), intent(in) :: x, dy; integer(c_int32_t), value :: train
    end function
    integer(c_int32_t) function c_window_create(model, options, p) bind(c, name="tandem_window_create")
      import; type(c_ptr), value :: model; type(window_options_t), intent(in) :: options; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_window_push(p, x, y) bind(c, name="tandem_window_push")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y
    end function
    integer(c_int32_t) function c_window_count(p, samples, pushed) bind(c, name="tandem_window_count")
      import; type(c_ptr), value :: p; integer(c_int64_t), intent(out) :: samples, pushed
    end function
    integer(c_int32_t) function c_window_train(p, model, budget, report) bind(c, name="tandem_window_train")
      import; type(c_ptr), value :: p, model; type(budget_t), intent(in) :: budget; type(tandem_report_t) :: report
    end function
    integer(c_int32_t) function c_window_free(p) bind(c, name="tandem_window_free")
      import; type(c_ptr), value :: p
    end function
    integer(c_int32_t) function c_trainer_start(model, window, options, p) bind(c, name="tandem_trainer_start")
      import; type(c_ptr), value :: model, window; type(trainer_options_t), intent(in) :: options; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_trainer_update(p, report) bind(c, name="tandem_trainer_update")
      import; type(c_ptr), value :: p; type(tandem_report_t) :: report
    end function
    integer(c_int32_t) function c_trainer_stop(p, report) bind(c, name="tandem_trainer_stop")
      import; type(c_ptr), value :: p; type(tandem_report_t) :: report
    end function
    integer(c_int32_t) function c_checkpoint_write(directory, cycle, models, n_models, windows, n_windows) &
        bind(c, name="tandem_checkpoint_write")
      import; character(kind=c_char), intent(in) :: directory(*); integer(c_int64_t), value :: cycle
      type(c_ptr), intent(in) :: models(*), windows(*); integer(c_int32_t), value :: n_models, n_windows
    end function
    integer(c_int32_t) function c_checkpoint_read(directory, cycle, models, n_models, windows, n_windows, read) &
        bind(c, name="tandem_checkpoint_read")
      import; character(kind=c_char), intent(in) :: directory(*); integer(c_int64_t), value :: cycle
      type(c_ptr), intent(in) :: models(*), windows(*); integer(c_int32_t), value :: n_models, n_windows
      integer(c_int64_t) :: read
    end function
    integer(c_int32_t) function c_state_size(model, window, bytes) bind(c, name="tandem_state_size")
      import; type(c_ptr), value :: model, window; integer(c_size_t), intent(out) :: bytes
    end function
    integer(c_int32_t) function c_state_get(model, window, bytes, n) bind(c, name="tandem_state_get")
      import; type(c_ptr), value :: model, window; character(kind=c_char) :: bytes(*); integer(c_size_t), value :: n
    end function
    integer(c_int32_t) function c_state_set(model, window, bytes, n) bind(c, name="tandem_state_set")
      import; type(c_ptr), value :: model, window; character(kind=c_char), intent(in) :: bytes(*); integer(c_size_t), value :: n
    end function
    integer(c_int32_t) function c_set_seed(seed) bind(c, name="tandem_set_seed")
      import; integer(c_int64_t), value :: seed
    end function
    integer(c_int32_t) function c_set_replica_invariant_parts(parts) bind(c, name="tandem_set_replica_invariant_parts")
      import; integer(c_int32_t), value :: parts
    end function
    integer(c_int32_t) function c_set_threads(threads) bind(c, name="tandem_set_threads")
      import; integer(c_int32_t), value :: threads
    end function
    function c_api() bind(c, name="tandem_c_api") result(version)
      import; integer(c_int32_t) :: version
    end function
    function c_last_error() bind(c, name="tandem_last_error") result(text)
      import; type(c_ptr) :: text
    end function
    function c_version() bind(c, name="tandem_version") result(text)
      import; type(c_ptr) :: text
    end function
    function c_status_name(status) bind(c, name="tandem_status_name") result(text)
      import; integer(c_int32_t), value :: status; type(c_ptr) :: text
    end function
    function c_strlen(text) bind(c, name="strlen") result(length)
      import; type(c_ptr), value :: text; integer(c_size_t) :: length
    end function
  end interface

contains

  ! --- messages and settings ---

  function string_of(text) result(string)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: string
    character(kind=c_char), pointer :: c(:)
    integer :: i
    call c_f_pointer(text, c, [c_strlen(text)])
    allocate (character(size(c)) :: string)
    do i = 1, size(c)
      string(i:i) = c(i)
    end do
  end function
  function tandem_message() result(message)  ! of this thread's last call; empty after success
    character(:), allocatable :: message
    message = string_of(c_last_error())
  end function
  function tandem_status_name(status) result(name)
    integer, intent(in) :: status
    character(:), allocatable :: name
    name = string_of(c_status_name(int(status, c_int32_t)))
  end function
  function tandem_version() result(version)
    character(:), allocatable :: version
    version = string_of(c_version())
  end function
  subroutine finish(code, status)
    integer(c_int32_t), intent(in) :: code
    integer, intent(out), optional :: status
    if (present(status)) then
      status = code
    else if (code /= tandem_ok) then
      write (error_unit, '(4a)') 'tandem: ', tandem_status_name(int(code)), ': ', tandem_message()
      error stop 1
    end if
  end subroutine
  subroutine tandem_seed(seed, status)
    integer, intent(in) :: seed
    integer, intent(out), optional :: status
    call finish(c_set_seed(int(seed, c_int64_t)), status)
  end subroutine
  subroutine tandem_replica_invariant_parts(parts, status)  ! the same bits on 1, 2, 4, ... ranks; 0: off
    integer, intent(in) :: parts
    integer, intent(out), optional :: status
    call finish(c_set_replica_invariant_parts(int(parts, c_int32_t)), status)
  end subroutine
  subroutine tandem_threads(threads, status)  ! of this rank; 0: its share of the cores
    integer, intent(in) :: threads
    integer, intent(out), optional :: status
    call finish(c_set_threads(int(threads, c_int32_t)), status)
  end subroutine

  ! --- groups and models ---

  subroutine tandem_group(group, comm, status)  ! collective over comm; with mpi_f08 pass comm%mpi_val
    type(tandem_group_t), intent(out) :: group
    integer, intent(in) :: comm
    integer, intent(out), optional :: status
    call require_library()
    call finish(tandem_group_from_fortran(int(comm, c_int), group%p), status)
  end subroutine
  subroutine tandem_group_rank(group, rank, ranks, status)
    type(tandem_group_t), intent(in) :: group
    integer, intent(out) :: rank, ranks
    integer, intent(out), optional :: status
    integer(c_int32_t) :: r, n
    r = -1; n = 0
    call finish(c_group_rank(group%p, r, n), status)
    rank = r; ranks = n
  end subroutine
  subroutine tandem_model(model, definition, group, status)  ! of JSON text; collective with a group
    type(tandem_model_t), intent(out) :: model
    character(*), intent(in) :: definition
    type(tandem_group_t), intent(in), optional :: group
    integer, intent(out), optional :: status
    call require_library()
    call finish(c_model_create(trim(definition) // c_null_char, pointer_of(group), model%p), status)
  end subroutine
  subroutine tandem_load(model, path, group, status)  ! what tandem_save() has written; collective with a group
    type(tandem_model_t), intent(out) :: model
    character(*), intent(in) :: path
    type(tandem_group_t), intent(in), optional :: group
    integer, intent(out), optional :: status
    call require_library()
    call finish(c_model_load(trim(path) // c_null_char, pointer_of(group), model%p), status)
  end subroutine
  subroutine tandem_save(model, path, status)  ! not collective
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: path
    integer, intent(out), optional :: status
    call finish(c_model_save(model%p, trim(path) // c_null_char), status)
  end subroutine
  function pointer_of(group) result(p)
    type(tandem_group_t), intent(in), optional :: group
    type(c_ptr) :: p
    p = c_null_ptr
    if (present(group)) p = group%p
  end function
  subroutine require_library()  ! the module needs the functions of version 4 of tandem_c.h
    if (c_api() < 4) error stop 'tandem: the library is older than the module tandem'
  end subroutine
  subroutine free_group(group)
    type(tandem_group_t), intent(inout) :: group
    call finish(c_group_free(group%p))
    group%p = c_null_ptr
  end subroutine
  subroutine free_model(model)
    type(tandem_model_t), intent(inout) :: model
    call finish(c_model_free(model%p))
    model%p = c_null_ptr
  end subroutine

  subroutine tandem_get(model, name, number, status)
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: name
    real(real64), intent(out) :: number
    integer, intent(out), optional :: status
    number = 0
    call finish(c_model_get(model%p, trim(name) // c_null_char, number), status)
  end subroutine
  subroutine tandem_set(model, name, number, status)
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: name
    real(real64), intent(in) :: number
    integer, intent(out), optional :: status
    call finish(c_model_set(model%p, trim(name) // c_null_char, number), status)
  end subroutine
  subroutine tandem_read(model, weight, to, status)  ! `to` describes an array with TARGET
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: weight
    type(tandem_array_t), intent(in) :: to
    integer, intent(out), optional :: status
    call finish(c_model_read(model%p, trim(weight) // c_null_char, to), status)
  end subroutine
  subroutine tandem_write(model, weight, from, status)
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: weight
    type(tandem_array_t), intent(in) :: from
    integer, intent(out), optional :: status
    call finish(c_model_write(model%p, trim(weight) // c_null_char, from), status)
  end subroutine

  ! --- training and predictions ---

  subroutine tandem_observe(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    integer, intent(out), optional :: status
    call finish(c_model_observe(model%p, x, y), status)
  end subroutine
  subroutine tandem_train(model, x, y, loss, weight, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    real(real64), intent(out), optional :: loss
    type(tandem_array_t), intent(in), optional, target :: weight  ! one number per example
    integer, intent(out), optional :: status
    real(real64) :: mean
    type(c_ptr) :: weights
    mean = 0
    weights = c_null_ptr
    if (present(weight)) weights = c_loc(weight)
    call finish(c_train(model%p, x, y, weights, mean), status)
    if (present(loss)) loss = mean
  end subroutine
  subroutine tandem_evaluate(model, x, y, loss, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    real(real64), intent(out) :: loss
    integer, intent(out), optional :: status
    loss = 0
    call finish(c_evaluate(model%p, x, y, loss), status)
  end subroutine
  ! Models of several inputs or outputs: [tandem_array(a), tandem_array(b)] in the order of the definition.
  subroutine tandem_train_multi(model, x, y, loss, weight, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x(:), y(:)
    real(real64), intent(out), optional :: loss
    type(tandem_array_t), intent(in), optional, target :: weight  ! one number per example
    integer, intent(out), optional :: status
    real(real64) :: mean
    type(c_ptr) :: weights
    mean = 0
    weights = c_null_ptr
    if (present(weight)) weights = c_loc(weight)
    call finish(c_train_multi(model%p, size(x), x, size(y), y, weights, mean), status)
    if (present(loss)) loss = mean
  end subroutine
  subroutine tandem_evaluate_multi(model, x, y, loss, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x(:), y(:)
    real(real64), intent(out) :: loss
    integer, intent(out), optional :: status
    loss = 0
    call finish(c_evaluate_multi(model%p, size(x), x, size(y), y, loss), status)
  end subroutine
  subroutine tandem_predict_multi(model, x, y, status)  ! `y` describes arrays with TARGET
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x(:), y(:)
    integer, intent(out), optional :: status
    call finish(c_predict_multi(model%p, size(x), x, size(y), y), status)
  end subroutine
  subroutine tandem_backward(model, x, dy, train, dx, status)  ! `dx` describes an array with TARGET
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, dy
    logical, intent(in) :: train
    type(tandem_array_t), intent(in), optional, target :: dx
    integer, intent(out), optional :: status
    type(c_ptr) :: gradient
    gradient = c_null_ptr
    if (present(dx)) gradient = c_loc(dx)
    call finish(c_backward(model%p, x, dy, merge(1_c_int32_t, 0_c_int32_t, train), gradient), status)
  end subroutine
  subroutine predict_array(model, x, y, status)  ! `y` describes an array with TARGET
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, y), status)
  end subroutine
  subroutine predict_real32_1(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_2(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_3(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_4(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_5(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_1(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_2(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_3(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_4(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_5(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine

  ! --- windows, trainers and restart: as in tandem_c.h ---

  subroutine tandem_window(window, model, capacity, batch, min_samples, random, holdout, seed, status)
    type(tandem_window_t), intent(out) :: window
    type(tandem_model_t), intent(in) :: model
    integer, intent(in), optional :: capacity, batch, min_samples, seed
    logical, intent(in), optional :: random  ! what a new sample replaces: any one instead of the oldest
    real(real64), intent(in), optional :: holdout
    integer, intent(out), optional :: status
    type(window_options_t) :: options
    if (present(capacity)) options%capacity = capacity
    if (present(batch)) options%batch = batch
    if (present(min_samples)) options%min_samples = min_samples
    if (present(random)) options%replace = merge(1, 0, random)
    if (present(holdout)) options%holdout = holdout
    if (present(seed)) options%seed = seed
    call finish(c_window_create(model%p, options, window%p), status)
  end subroutine
  subroutine tandem_push(window, x, y, status)
    type(tandem_window_t), intent(in) :: window
    type(tandem_array_t), intent(in) :: x, y
    integer, intent(out), optional :: status
    call finish(c_window_push(window%p, x, y), status)
  end subroutine
  subroutine tandem_count(window, samples, pushed, status)
    type(tandem_window_t), intent(in) :: window
    integer(int64), intent(out) :: samples, pushed
    integer, intent(out), optional :: status
    samples = 0; pushed = 0
    call finish(c_window_count(window%p, samples, pushed), status)
  end subroutine
  subroutine tandem_train_window(window, model, max_steps, max_seconds, report, status)  ! collective with a group
    type(tandem_window_t), intent(in) :: window
    type(tandem_model_t), intent(in) :: model
    integer, intent(in), optional :: max_steps  ! default: 1, without a limit of seconds
    real(real64), intent(in), optional :: max_seconds
    type(tandem_report_t), intent(out), optional :: report
    integer, intent(out), optional :: status
    type(budget_t) :: budget
    type(tandem_report_t) :: done
    if (present(max_seconds)) budget = budget_t(max_steps=0, max_seconds=max_seconds)
    if (present(max_steps)) budget%max_steps = max_steps
    call finish(c_window_train(window%p, model%p, budget, done), status)
    if (present(report)) report = done
  end subroutine
  subroutine free_window(window)
    type(tandem_window_t), intent(inout) :: window
    call finish(c_window_free(window%p))
    window%p = c_null_ptr
  end subroutine

  subroutine tandem_trainer_start(trainer, model, window, max_lag, steps_per_push, threads, status)
    type(tandem_trainer_t), intent(out) :: trainer
    type(tandem_model_t), intent(in) :: model
    type(tandem_window_t), intent(in) :: window
    integer, intent(in), optional :: max_lag, threads
    real(real64), intent(in), optional :: steps_per_push
    integer, intent(out), optional :: status
    type(trainer_options_t) :: options
    if (present(max_lag)) options%max_lag = max_lag
    if (present(threads)) options%threads = threads
    if (present(steps_per_push)) options%steps_per_push = steps_per_push
    call finish(c_trainer_start(model%p, window%p, options, trainer%p), status)
  end subroutine
  subroutine tandem_trainer_update(trainer, report, status)
    type(tandem_trainer_t), intent(in) :: trainer
    type(tandem_report_t), intent(out), optional :: report
    integer, intent(out), optional :: status
    type(tandem_report_t) :: done
    call finish(c_trainer_update(trainer%p, done), status)
    if (present(report)) report = done
  end subroutine
  subroutine tandem_trainer_stop(trainer, report, status)
    type(tandem_trainer_t), intent(inout) :: trainer
    type(tandem_report_t), intent(out), optional :: report
    integer, intent(out), optional :: status
    type(tandem_report_t) :: done
    call finish(c_trainer_stop(trainer%p, done), status)
    trainer%p = c_null_ptr
    if (present(report)) report = done
  end subroutine

  subroutine tandem_checkpoint_write(directory, cycle, models, windows, status)
    character(*), intent(in) :: directory
    integer, intent(in) :: cycle
    type(tandem_model_t), intent(in) :: models(:)
    type(tandem_window_t), intent(in) :: windows(:)
    integer, intent(out), optional :: status
    call finish(c_checkpoint_write(trim(directory) // c_null_char, int(cycle, c_int64_t), models%p, size(models), &
                                   windows%p, size(windows)), status)
  end subroutine
  subroutine tandem_checkpoint_read(directory, cycle, models, windows, found, status)  ! cycle -1: the newest whole one
    character(*), intent(in) :: directory
    integer, intent(in) :: cycle
    type(tandem_model_t), intent(in) :: models(:)
    type(tandem_window_t), intent(in) :: windows(:)
    integer, intent(out), optional :: found, status
    integer(c_int64_t) :: read
    read = -1
    call finish(c_checkpoint_read(trim(directory) // c_null_char, int(cycle, c_int64_t), models%p, size(models), &
                                  windows%p, size(windows), read), status)
    if (present(found)) found = int(read)
  end subroutine
  subroutine tandem_state_size(model, window, bytes, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_window_t), intent(in) :: window
    integer(int64), intent(out) :: bytes
    integer, intent(out), optional :: status
    integer(c_size_t) :: n
    n = 0
    call finish(c_state_size(model%p, window%p, n), status)
    bytes = n
  end subroutine
  subroutine tandem_state_get(model, window, bytes, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_window_t), intent(in) :: window
    character(kind=c_char), intent(inout) :: bytes(:)
    integer, intent(out), optional :: status
    call finish(c_state_get(model%p, window%p, bytes, size(bytes, kind=c_size_t)), status)
  end subroutine
  subroutine tandem_state_set(model, window, bytes, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_window_t), intent(in) :: window
    character(kind=c_char), intent(in) :: bytes(:)
    integer, intent(out), optional :: status
    call finish(c_state_set(model%p, window%p, bytes, size(bytes, kind=c_size_t)), status)
  end subroutine

end module
